"""Runs one real program (named by the argument) on the C library's malloc and on each library under test: equal output.

Status 77 when the program is not on this machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from pathlib import Path

from preload.program import Program
from preload.programs import PROGRAMS
from preload.session import Session, find
from support import harness

LIBRARIES = [Path(path).resolve() if path else None for path in os.environ.get("FREESTONE_LIBRARY", "").split(":")]


def outcome(program: Program, library: Path | None, owners: dict[str, set[str]]) -> str:
    with tempfile.TemporaryDirectory(prefix="freestone-") as name:
        session = Session(Path(name), library)
        result = program.play(session)
        owners.update(session.served())
        if "freestone:" in session.errors:
            raise RuntimeError(f"the library complained: {session.errors[-2000:]}")
        return result.replace(name, "FOLDER")


def check(program: Program) -> int:
    missing = [need for need in program.needs if find(need) is None]
    if missing:
        print(f"not on this machine: {', '.join(missing)}")
        return harness.SKIPPED
    try:
        expected = outcome(program, None, {})
    except unittest.SkipTest as reason:
        print(reason)
        return harness.SKIPPED
    if not expected.strip():
        print("the program printed nothing: nothing was compared")
        return 1
    return max(compared(program, expected, library) for library in LIBRARIES)


def compared(program: Program, expected: str, library: Path | None) -> int:
    owners: dict[str, set[str]] = {}
    actual = outcome(program, library, owners)
    if expected != actual:
        print(
            f"output on {library} differs from that on the C library's malloc:\n"
            f"--- expected\n{expected[:2000]}\n--- actual\n{actual[:2000]}"
        )
        return 1
    names = {served for served in owners if served.startswith(program.served)}
    wrong = {served: owners[served] for served in names if library and owners[served] != {str(library)}}
    if not names or wrong:
        print(f"malloc of {program.served} was not served by {library}: {owners}")
        return 1
    print(f"{len(expected)} characters equal on {library}; served: {sorted(owners)}")
    return 0


if __name__ == "__main__":
    sys.exit(check(PROGRAMS[sys.argv[1]]))
