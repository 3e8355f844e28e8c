"""Every program of the tables under no library, the fast and the hardened one: same output? how much CPU time and memory?

    python3 -m preload.survey RESULT.json [PROGRAM...]

FREESTONE_LIBRARY names both libraries, as ctest does. Writes RESULT.json and one line for each program; ends with 1 when a program
differs or fails under a library. What is not on the machine is skipped by name.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import resource
import sys
import tempfile
import unittest
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from preload import catalogue
from preload.program import Program
from preload.programs import PROGRAMS
from preload.programs_test import LIBRARIES
from preload.session import Session, find
from support import harness

SCHEMA = "freestone-programs/1"
NAMES = ("none", "fast", "hardened")


@dataclass(frozen=True)
class Play:
    """One program under one library. `failure` is empty when it ended well."""

    output: str = ""
    failure: str = ""
    skipped: str = ""
    cpu_s: float = 0.0
    peak_kib: int = 0


@dataclass
class Row:
    """`verdict`: same, differs, fails, unsteady (two runs without a library differ) or skipped."""

    program: str
    package: str
    verdict: str
    detail: str = ""
    cpu_s: dict[str, float] = field(default_factory=dict)
    peak_kib: dict[str, int] = field(default_factory=dict)


def _play(program: Program, library: Path | None, answer: Connection) -> None:
    """In a process of its own, so that the kernel's account of its children is this play's."""
    with tempfile.TemporaryDirectory(prefix="freestone-", ignore_cleanup_errors=True) as name:
        session = Session(Path(name), library)
        output = failure = skipped = ""
        try:
            output = program.play(session).replace(name, "FOLDER")
            if library and has_own_malloc(program, session):
                raise unittest.SkipTest("it brings a malloc of its own")
            failure = unserved(program, session, library)
        except unittest.SkipTest as reason:
            skipped = str(reason)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[-600:]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = round(used.ru_utime + used.ru_stime, 3)
        answer.send(Play(output, failure, skipped, cpu, used.ru_maxrss))


def has_own_malloc(program: Program, session: Session) -> bool:
    """Whether the program that counts was served by itself, as browsers are."""
    return any(
        Path(owner).name == name
        for name, owners in session.served().items()
        if name.startswith(program.served)
        for owner in owners
    )


def unserved(program: Program, session: Session, library: Path | None) -> str:
    """Why the run proves nothing about the library: it did not serve the program, or it complained."""
    if "freestone:" in session.errors:
        return f"the library complained: {session.errors[-400:]}"
    served = session.served()
    names = {name for name in served if name.startswith(program.served)}
    if library and (not names or any(served[name] != {str(library)} for name in names)):
        return f"malloc of {program.served} was served by {served}"[:600]
    return ""


def play(program: Program, library: Path | None) -> Play:
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_play, args=(program, library, send))
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
    plays = {label: run(program, library) for label, library in zip(NAMES, (None, *LIBRARIES), strict=True)}
    expected = plays["none"]
    row = Row(
        name, package, "same", "", {k: p.cpu_s for k, p in plays.items()}, {k: p.peak_kib for k, p in plays.items()}
    )
    reasons = [p.skipped for p in plays.values() if p.skipped]
    if reasons or expected.failure or not expected.output.strip():
        row.verdict = "skipped"
        row.detail = reasons[0] if reasons else f"without a library: {expected.failure or 'it prints nothing'}"
        return row
    failed = [f"{label}: {p.failure}" for label, p in plays.items() if p.failure]
    differing = [label for label, p in plays.items() if p.output != expected.output]
    if failed:
        row.verdict, row.detail = "fails", "; ".join(failed)
    elif differing and run(program, None).output != expected.output:
        row.verdict, row.detail = "unsteady", "two runs without a library differ"
    elif differing:
        row.verdict, row.detail = "differs", ", ".join(differing)
    return row


def main(arguments: list[str]) -> int:
    path, *names = arguments
    for name in names:
        if name not in PROGRAMS:
            sys.exit(f"survey: no program '{name}'; expected some of {' '.join(PROGRAMS)}")
    rows: list[Row] = []
    for name in names or PROGRAMS:
        row = survey(name, PROGRAMS[name])
        rows.append(row)
        print(f"{row.verdict:9} {name} {row.detail.strip().splitlines()[-1] if row.detail else ''}", flush=True)
        result = {"schema": SCHEMA, "machine": platform.platform(), "programs": [asdict(r) for r in rows]}
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
    if len(sys.argv) < 2:
        sys.exit("usage: python3 -m preload.survey RESULT.json [PROGRAM...]")
    assert harness.PROBES.is_dir(), "FREESTONE_PROBES: expected the folder of the probes"
    sys.exit(main(sys.argv[1:]))
