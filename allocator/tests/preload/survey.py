"""Every program or suite of a table under no library, the fast and the hardened one: same output? what CPU and memory?

    python3 -m preload.survey RESULT.json programs|suites [NAME...]

FREESTONE_LIBRARY names both libraries, as ctest does. Writes RESULT.json and one line for each entry; ends with 1 when
one differs or fails under a library. What is not on the machine is skipped by name.
"""

import contextlib
import ctypes
import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from preload import catalogue, sources
from preload.program import Program
from preload.programs import PROGRAMS
from preload.session import Session, find
from preload.suites import SUITES
from support import harness
from support.measured import stamp

LIBRARIES = [harness.library(path) for path in os.environ.get("FREESTONE_LIBRARY", "").split(":")]
SCHEMA = "freestone-programs/1"
PR_SET_CHILD_SUBREAPER = 36
NAMES = ("none", "fast", "hardened")
UNJUDGED = "without a library: "


@dataclass(frozen=True)
class Play:
    """One program under one library. `failure` is empty when it ended well."""

    output: str = ""
    failure: str = ""
    skipped: str = ""
    cpu_s: float = 0.0
    peak_kib: int = 0
    processes: int = 0
    linked: dict[str, int] = field(default_factory=dict)


@dataclass
class Row:
    """`verdict`: same, differs, fails, unsteady (two runs without a library differ) or skipped. `tests`: the lines that
    were compared; `processes`: how many of the program were served, in the run with the fewest; `linked`: of each
    malloc that the program is linked with, the bytes that it had given out at an exit: none under a library."""

    program: str
    package: str
    verdict: str
    detail: str = ""
    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_kib: dict[str, int] = field(default_factory=dict)
    tests: int = 0
    processes: int = 0
    own_malloc: bool = False
    linked: dict[str, dict[str, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def _play(program: Program, library: Path | None, source: Path, answer: Connection) -> None:
    """In a process of its own, so that the kernel's account of its children is this play's, daemons included. Their
    peaks are those that `peak` saw, because this process is larger than many a program."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with (
        tempfile.TemporaryDirectory(prefix="freestone-", ignore_cleanup_errors=True) as name,
        tempfile.NamedTemporaryFile("r", prefix="freestone-") as peaks,
    ):
        session = Session(Path(name), library, source, (harness.PROBES / "peak", peaks.name))
        output = failure = skipped = ""
        try:
            output = program.play(session).replace(name, "FOLDER")
            failure = unserved(program, session, library)
        except unittest.SkipTest as reason:
            skipped = str(reason)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[-600:]
        found = [*daemons(), *map(int, peaks.read().split())]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = round(used.ru_utime + used.ru_stime, 3)
        processes = sum(name.startswith(program.served) for name, _ in session.testimony())
        linked = session.linked(program.served)
        answer.send(Play(output, failure, skipped, cpu, max(found, default=0), processes, linked))


def daemons() -> list[int]:
    """The peaks of the processes that were left to this one. One that does not end within a few seconds is left out."""
    peaks = []
    with contextlib.suppress(ChildProcessError):
        for _ in range(100):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                peaks.append(ended[2].ru_maxrss)
            time.sleep(0.05)
    return peaks


def busy_s() -> float:
    """The CPU time that all processes of the machine have had."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def unserved(program: Program, session: Session, library: Path | None) -> str:
    """Why the run proves nothing about the library: it did not serve the program, or it complained."""
    if "freestone:" in session.errors:
        return f"the library complained: {session.errors[-400:]}"
    served = session.served()
    names = {name for name in served if name.startswith(program.served)}
    if program.own_malloc:
        own = {name for name in names if all(Path(owner).name == name for owner in served[name])}
        return "" if own == names != set() else f"malloc of {program.served} was served by {served}"[:600]
    wanted = {library and library.resolve()}
    wrong = {name: served[name] for name in names if {Path(owner).resolve() for owner in served[name]} != wanted}
    if library and (wrong or not names):
        return f"malloc of {program.served} was served by {wrong or served}"[:600]
    return ""


def play(program: Program, library: Path | None) -> Play:
    try:
        source = Path("/nonexistent")
        if program.prepare:
            source = program.prepare()
        elif program.source:
            source = sources.prepared(program.source, program.build)
    except sources.Unavailable as reason:
        return Play(skipped=str(reason))
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_play, args=(program, library, source, send))
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        return Play(failure="the test's own process died")
    finally:
        process.join()


def survey(name: str, program: Program, run: Callable[[Program, Path | None], Play] = play) -> Row:
    package = catalogue.PACKAGES.get(name, "")
    missing = [need for need in program.needs if find(need) is None]
    if missing:
        return Row(name, package, "skipped", f"not on this machine: {', '.join(missing)}")
    plays = {label: run(program, library) for label, library in zip(NAMES, (None, *LIBRARIES), strict=False)}
    expected = plays["none"]
    row = Row(
        name, package, "same", "", {k: p.cpu_s for k, p in plays.items()}, {k: p.peak_kib for k, p in plays.items()},
        own_malloc=program.own_malloc,
    )  # fmt: skip
    row.linked = {name: {label: p.linked.get(name, -1) for label, p in plays.items()} for name in expected.linked}
    row.tests, row.processes = len(expected.output.splitlines()), min(p.processes for p in plays.values())
    reasons = [p.skipped for p in plays.values() if p.skipped]
    if reasons or expected.failure or not expected.output.strip():
        row.verdict = "skipped"
        row.detail = reasons[0] if reasons else f"{UNJUDGED}{expected.failure or 'it prints nothing'}"
        return row
    failed = [f"{label}: {p.failure}" for label, p in plays.items() if p.failure]
    for name, given in row.linked.items():
        if any(given[label] for label in plays if label != "none"):
            failed.append(f"{name} gave out {given}")
    differing = [label for label, p in plays.items() if p.output != expected.output]
    if failed:
        row.verdict, row.detail = "fails", "; ".join(failed)
    elif differing and (again := run(program, None).output) != expected.output:
        row.verdict, row.detail = "unsteady", f"two runs without a library differ: {difference(expected.output, again)}"
    elif differing:
        row.verdict = "differs"
        row.detail = "; ".join(f"{label}: {difference(expected.output, plays[label].output)}" for label in differing)
    return row


def difference(expected: str, actual: str) -> str:
    """The first lines that only one of the two has."""
    one, other = set(expected.splitlines()), set(actual.splitlines())
    lines = [*(f"-{line}" for line in sorted(one - other)[:3]), *(f"+{line}" for line in sorted(other - one)[:3])]
    return ", ".join(lines)[:600]


def main(arguments: list[str]) -> int:
    path, kind, *names = arguments
    table = {"programs": PROGRAMS, "suites": {name: suite.program for name, suite in SUITES.items()}}[kind]
    for name in names:
        if name not in table:
            sys.exit(f"survey: no entry '{name}' among the {kind}; expected some of {' '.join(table)}")
    rows: list[Row] = []
    start, others = time.monotonic(), busy_s() - own_s()
    for name in names or table:
        row = survey(name, table[name])
        if kind == "suites":
            row.package, row.left_out = " ".join(SUITES[name].packages), dict(SUITES[name].left_out)
        rows.append(row)
        print(f"{row.verdict:9} {name} {row.detail.strip().splitlines()[-1] if row.detail else ''}", flush=True)
        beside = round((busy_s() - own_s() - others) / (time.monotonic() - start), 2)
        result = {
            "schema": SCHEMA,
            "machine": platform.platform(),
            **stamp(),
            "processors": os.cpu_count(),
            "busy_beside": beside,
            "programs": [asdict(r) for r in rows],
        }
        Path(path).write_text(json.dumps(result, indent=1) + "\n")
    counts = {
        verdict: sum(r.verdict == verdict for r in rows)
        for verdict in ("same", "differs", "fails", "unsteady", "skipped")
    }
    bad = counts["differs"] + counts["fails"]
    skipped = counts["skipped"] + counts["unsteady"]
    print(f"{counts['same']} passed, {bad} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if bad or not counts["same"] else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python3 -m preload.survey RESULT.json programs|suites [NAME...]")
    assert harness.PROBES.is_dir(), "FREESTONE_PROBES: expected the folder of the probes"
    sys.exit(main(sys.argv[1:]))
