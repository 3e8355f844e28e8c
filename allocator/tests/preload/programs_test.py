"""Runs one real program (named by the argument) on the C library's malloc and on each library under test: equal output.

Status 77 when the program is not on this machine.
"""

import sys

from preload.programs import PROGRAMS
from preload.survey import UNJUDGED, survey
from support import harness


def check(name: str) -> int:
    row = survey(name, PROGRAMS[name])
    print(f"{row.verdict}: {row.tests} lines, {row.processes} processes served at least; {row.detail}")
    if row.verdict == "skipped" and not row.detail.startswith(UNJUDGED):
        return harness.SKIPPED
    return 0 if row.verdict == "same" else 1


if __name__ == "__main__":
    sys.exit(check(sys.argv[1]))
