"""The torture program once under each axis, in both builds.

    python3 -m torture.run draw              a drawn tenth; FREESTONE_TEST_SEED repeats one
    python3 -m torture.run found             the axes that have found defects which no smaller test shows
    python3 -m torture.run whole RESULT.json all of it, for docs/TORTURE.md
    python3 -m torture.run AXIS BUILD        these; patterns as in a shell

FREESTONE_TORTURE is the program, FREESTONE_TROUBLED the folder of the libraries with the stand-in. Ends with 1 when one
did not end well or a call of points.def that may be refused was never refused.
"""

import contextlib
import fnmatch
import json
import os
import platform
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from support.measured import stamp
from torture.axes import FOUND, Axis, axes, points

SCHEMA = "freestone-torture/1"
LIBRARIES = {"fast": "libfreestone.so.1", "hardened": "libfreestone-hardened.so.1"}
MILLISECONDS = 1000
HANG_S = 40.0
PASSED = "passed"


@dataclass
class Row:
    axis: str
    build: str
    outcome: str
    seconds: float
    refused: dict[str, int]  # by the names of points.def


def play(axis: Axis, build: str, seed: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder:
        census = Path(folder) / "census"
        census.write_bytes(bytes(8 * len(points())))
        library = str(Path(os.environ["FREESTONE_TROUBLED"]) / LIBRARIES[build])
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FREESTONE_CONF", "LD_PRELOAD"))}
        environment |= {"LD_PRELOAD": library, "STAND_IN": axis.rules, "STAND_IN_CONF": axis.options}
        environment |= {"STAND_IN_CENSUS": str(census), "STAND_IN_FAULTS": "1"}
        command = [os.environ["FREESTONE_TORTURE"], hex(seed), str(MILLISECONDS), *(["quiet"] if axis.quiet else [])]
        begin = time.monotonic()
        outcome = ended(command, environment, folder)
        seconds = round(time.monotonic() - begin, 1)
        numbers = struct.unpack(f"{2 * len(points())}I", census.read_bytes())
    refused = {point.name: numbers[2 * point.number + 1] for point in points() if numbers[2 * point.number + 1]}
    row = Row(axis.name, build, outcome, seconds, refused)
    if outcome != PASSED:
        again = " ".join(f"{name}={environment[name]!r}" for name in ("LD_PRELOAD", "STAND_IN", "STAND_IN_CONF"))
        print(f"{axis.name} {build}: {outcome}\n  {again} {' '.join(command)}", flush=True)
    return row


def ended(command: Sequence[str], environment: dict[str, str], folder: str) -> str:
    """Passed, or what went wrong. No process of the program is left."""
    with (Path(folder) / "errors").open("w+b") as errors:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=errors, stderr=errors, start_new_session=True
        )
        status: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(HANG_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()[-1500:]
    if status is None:
        return f"ran past its time; {said}"
    if status == 0:
        return PASSED
    how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    return f"{how}; {said}"


def play_all(chosen: Sequence[tuple[Axis, str]], seed: int) -> list[Row]:
    print(f"torture: FREESTONE_TEST_SEED={seed:#x}, {len(chosen)} runs", flush=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        rows = list(pool.map(lambda pair: play(pair[0], pair[1], seed), chosen))
    print(f"{sum(row.outcome == PASSED for row in rows)} of {len(rows)} passed", flush=True)
    return rows


def not_met(rows: Sequence[Row]) -> list[str]:
    """The calls that may be refused and never were."""
    met = {name for row in rows for name in row.refused}
    return [point.name for point in points() if point.need != "needed" and point.name not in met]


def main(words: Sequence[str]) -> int:
    given = os.environ.get("FREESTONE_TEST_SEED")
    seed = int(given, 0) if given else int.from_bytes(os.urandom(4), "little")
    chosen = [(axis, build) for axis in axes() for build in axis.builds]
    if words[0] != "whole":
        if words[0] == "draw":
            some = random.Random(seed).sample(chosen, len(chosen) // 10)
        elif words[0] == "found":
            some = [(axis, build) for axis, build in chosen if axis.name in FOUND]
        else:
            some = [(a, b) for a, b in chosen if all(map(fnmatch.fnmatchcase, (a.name, b), words))]
        rows = play_all(some, seed)
        calls = {point.name for point in points()} if words[0] == "found" else set()
        spared = [row.axis for row in rows if row.axis in calls and row.axis not in row.refused]
        print("never refused:", ", ".join(spared) or "none")
        return 1 if spared or any(row.outcome != PASSED for row in rows) else 0
    begin = time.monotonic()
    rows = play_all(chosen, seed)
    never = not_met(rows)
    result = {
        "schema": SCHEMA,
        "machine": platform.platform(),
        **stamp(),
        "seed": seed,
        "seconds": round(time.monotonic() - begin),
        "not_met": never,
    }
    lines = ",\n".join(json.dumps(asdict(row)) for row in rows)
    head = json.dumps(result, indent=1).removesuffix("\n}")
    Path(words[1]).write_text(f'{head},\n "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print("never refused:", ", ".join(never) or "none")
    return 1 if never or any(row.outcome != PASSED for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
