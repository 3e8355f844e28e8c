"""Result files. Only this module reads or writes them. It refuses a bad one and names file, field and expectation."""

import dataclasses
import gzip
import json
import zlib
from pathlib import Path

import msgspec

from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import SCHEMA, Result, control_name

# What a process is measured by. Other figures may be differences, which can be below 0, as rss_growth.
NEVER_NEGATIVE = {"wall", "cpu", "user", "sys", "rss", "pss", "minor_faults", "major_faults"}


INTERRUPTED = "interrupted: fewer rounds than planned"  # a caveat


class ResultError(UserError):
    """A result file that cannot be read; the message names the file and what was expected."""


def save(result: Result, path: Path) -> None:
    """Writes `result` to `path` as JSON; gzip when the name ends in .gz. The file appears whole or not at all."""
    text = json.dumps(dataclasses.asdict(result), separators=(",", ":"), allow_nan=False)
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    outputs.write_whole(path, data)


def load(path: Path) -> Result:
    """Reads a result file. Raises ResultError naming the file, the field and what was expected there."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        encoding = json.detect_encoding(text)  # a shell's `>` may write UTF-16
        raw = msgspec.json.decode(text if encoding == "utf-8" else text.decode(encoding))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, RecursionError, msgspec.DecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ResultError(f"{path}: cannot be read as a result file: {why}") from error
    found = raw.get("schema") if isinstance(raw, dict) else None
    if found != SCHEMA:
        raise ResultError(f"{path}: schema is {found!r}, expected {SCHEMA!r}")
    try:
        result = msgspec.convert(raw, Result)
    except msgspec.ValidationError as error:
        raise ResultError(f"{path}: not a result of {SCHEMA}: {error}") from error
    _check(result, path)
    words = result.command
    fixed = "--rounds" in words or (words[1:2] == ["bench"] and "--budget" not in words)
    for experiment in result.experiments:
        if experiment.rounds_fixed is None:  # of a release that did not say it
            experiment.rounds_fixed = fixed and INTERRUPTED not in experiment.caveats
    return result


def _check(result: Result, path: Path) -> None:
    """Raises ResultError if nothing was measured, a figure is impossible, or a name has nothing in the file."""
    if not any(experiment.samples for experiment in result.experiments):
        raise ResultError(f"{path}: `$.experiments` holds no sample: nothing was measured")
    peers = {peer.name for peer in result.peers}
    if result.baseline not in peers:
        raise ResultError(f"{path}: `$.baseline` is {result.baseline!r}, expected the name of an entry of `$.peers`")
    for place, experiment in enumerate(result.experiments):
        for at, sample in enumerate(experiment.samples):
            where = f"{path}: `$.experiments[{place}].samples[{at}]"
            if sample.peer not in peers and sample.peer != control_name(result.baseline):
                raise ResultError(f"{where}.peer` is {sample.peer!r}, expected the name of an entry of `$.peers`")
            less = next((name for name in sample.figures.keys() & NEVER_NEGATIVE if sample.figures[name] < 0), None)
            if less is not None:
                raise ResultError(f"{where}.figures.{less}` is {sample.figures[less]:g}, expected at least 0")
            unknown = next((name for name in sample.figures if name not in experiment.specs), None)
            if unknown is not None:
                raise ResultError(f"{where}.figures` has {unknown!r}, expected names of the experiment's `specs`")
