"""Runs a program with libfreestone's heap profiler and gathers what it wrote."""

from __future__ import annotations

import enum
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from freestone_lab import runner
from freestone_lab.errors import UserError
from freestone_lab.flamegraph import Profile, read_profile
from freestone_lab.symbolize import symbolize

PREFIX = "profile"


class Form(enum.StrEnum):
    """The profile formats that libfreestone writes (option prof_format)."""

    pprof = "pprof"
    collapsed = "collapsed"
    heap_v2 = "heap_v2"


@dataclass(frozen=True)
class Profiled:
    profiles: list[Profile]
    exit_status: int


def load(files: Sequence[Path]) -> list[Profile]:
    """The profiles in `files`, their addresses resolved. Raises ProfileError."""
    return [symbolize(read_profile(path)) for path in files]


def configuration(given: str, folder: Path, form: Form, sample_bytes: int) -> str:
    """FREESTONE_CONF that turns the profiler on; the user's own settings stay in front."""
    if any(c in str(folder) for c in ",;"):
        raise UserError(f"--keep '{folder}': a folder's name with ',' or ';' cannot stand in FREESTONE_CONF")
    ours = f"prof:true,prof_file:{folder / PREFIX}.%p,prof_sample_bytes:{sample_bytes},prof_format:{form.value}"
    return f"{given},{ours}" if given else ours


def run(command: Sequence[str], form: Form, sample_bytes: int, keep: Path | None) -> Profiled:
    """Runs `command` to its end and reads every profile that it and its children left."""
    prepared = runner.prepare(command, stats=False, hardened=False)
    with tempfile.TemporaryDirectory(prefix="freestone-profile-") as scratch:
        folder = Path(scratch)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            folder = keep.resolve()
        already = set(folder.glob(f"{PREFIX}.*"))
        conf = configuration(prepared.env.get(runner.CONF, ""), folder, form, sample_bytes)
        done = subprocess.run(
            prepared.argv, executable=prepared.program, env={**prepared.env, runner.CONF: conf}, check=False
        )
        found = sorted(set(folder.glob(f"{PREFIX}.*")) - already, key=lambda p: (p.stat().st_mtime_ns, p.name))
        written = [path for path in found if path.stat().st_size > 0]
        if not written:
            raise UserError(f"'{command[0]}' left no profile: {reason(done.returncode)}")
        profiles = load(written)
    return Profiled(profiles, status(done.returncode))


def status(returncode: int) -> int:
    """A shell's exit status: 128 + N for a program that died of signal N."""
    return 128 - returncode if returncode < 0 else returncode


def reason(returncode: int) -> str:
    if returncode < 0:
        return f"it died of {signal.Signals(-returncode).name} before its exit"
    return "this build of libfreestone has no heap profiler, or the program left without running its exit handlers"
