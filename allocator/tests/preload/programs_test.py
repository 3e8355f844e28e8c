"""Runs one real program (named by the argument) on the C library's malloc and on the library under test: the output must be equal.

Status 77 when the program is not on this machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from preload.program import Program
from preload.programs import PROGRAMS
from preload.session import Session, find
from support import harness


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
    owners: dict[str, set[str]] = {}
    expected = outcome(program, None, {})
    actual = outcome(program, harness.LIBRARY, owners)
    if expected != actual:
        print(f"output differs from that on the C library's malloc:\n--- expected\n{expected[:2000]}\n--- actual\n{actual[:2000]}")
        return 1
    if not expected.strip():
        print("the program printed nothing: nothing was compared")
        return 1
    names = {served for served in owners if served.startswith(program.served)}
    wrong = {served: owners[served] for served in names if harness.LIBRARY and owners[served] != {str(harness.LIBRARY)}}
    if not names or wrong:
        print(f"malloc of {program.served} was not served by {harness.LIBRARY}: {owners}")
        return 1
    print(f"{len(expected)} characters equal; served: {sorted(owners)}")
    return 0


if __name__ == "__main__":
    sys.exit(check(PROGRAMS[sys.argv[1]]))
