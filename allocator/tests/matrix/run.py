"""The matrix: every test that loads the library, once under each axis that it meets.

    python3 -m matrix.run draw [SECONDS]              a drawn part; FREESTONE_TEST_SEED repeats one
    python3 -m matrix.run whole [RESULT.json]
    python3 -m matrix.run AXIS TEST                   these cells; patterns as in a shell

FREESTONE_BUILD_DIR is the build folder, FREESTONE_TROUBLED the folder of the matrix's libraries. First each test runs
in peace, which tells what it asks the kernel for. Ends with 1 when something failed that promises.py does not excuse.
"""

from __future__ import annotations

import fnmatch
import json
import os
import platform
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from matrix import promises
from matrix.axes import Axis, axes
from matrix.cells import Failure, Outcome, Test, line, run, tests

SCHEMA = "freestone-matrix/1"
PEACE = Axis("peace")
DRAW_S = 15.0
LEAST_LIMIT_S = 240.0
PATIENCE = 40.0  # what takes so many times as long as in peace hangs
# A test that takes longer meets one error of each call, another test another one; and it is not drawn.
LONG_S = 1.5
# Too long for a drawn part, whatever the machine.
NOT_DRAWN = (
    "fault.syscalls.* fault.rlimit.* fault.refusal.* fault.refused_purge* fault.used_up.* fault.enumerated.* \
stress.fork* stress.exit.* footprint.* preload.programs.* sampling.* api.written_statistics.* api.cgroup.* \
api.across_fork.* api.clearing.*"
)


@dataclass
class Finding:
    axis: str
    test: str
    case: str
    hurt: bool
    text: str
    again: str  # the command that runs the cell again


@dataclass
class Column:
    """What one axis gave. `excused` counts cases by the reason; `unsteady`: cells that passed at their second run."""

    cells: int = 0
    skipped: int = 0
    passed: int = 0
    seconds: float = 0.0
    excused: dict[str, int] = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Matrix:
    def __init__(self, chosen: Sequence[Test]) -> None:
        self.tests = [t for t in chosen if not any(fnmatch.fnmatchcase(t.name, p) for p in promises.LEFT_OUT)]
        self.columns: dict[str, Column] = {}
        self.used: set[promises.Row] = set()

    def play(self, test: Test, axis: Axis, limit_s: float) -> Outcome:
        """Runs a cell and enters it. A case that only missed something may do so once: time and load are no axis."""
        outcome = run(test, axis, limit_s)
        column = self.columns.setdefault(axis.name, Column())
        problems = self._problems(test, axis, outcome)
        if problems and not any(failure.hurt for failure in problems):
            again = self._problems(test, axis, run(test, axis, limit_s))
            if not again:
                column.unsteady.append(test.name)
            problems = again
        column.cells += 1
        column.seconds += outcome.seconds
        column.skipped += outcome.skipped
        column.passed += not outcome.skipped and not outcome.failures
        for failure in problems:
            found = Finding(axis.name, test.name, failure.case, failure.hurt, failure.text[-3000:], line(test, axis))
            column.findings.append(found)
            print(
                f"{'HURT' if found.hurt else 'missed'}: {axis.name} {test.name} {found.case}\n  {found.again}",
                flush=True,
            )
        return outcome

    def _problems(self, test: Test, axis: Axis, outcome: Outcome) -> list[Failure]:
        problems = []
        for failure in outcome.failures:
            row = promises.row_for(axis, test.name, failure.case, failure.hurt)
            if row is None:
                problems.append(failure)
                continue
            self.used.add(row)
            excused = self.columns.setdefault(axis.name, Column()).excused
            excused[row.reason] = excused.get(row.reason, 0) + 1
        return problems

    def findings(self) -> list[Finding]:
        return [finding for column in self.columns.values() for finding in column.findings]


def cells(matrix: Matrix, chosen: Sequence[Axis], peace: dict[str, Outcome]) -> Iterator[tuple[Test, Axis]]:
    for number, test in enumerate(matrix.tests):
        outcome = peace[test.name]
        errors: dict[str, int] = {}
        for axis in chosen:
            if not outcome.met(axis) or not set(test.builds) & set(axis.builds):
                continue
            call, _, error = axis.name.partition(".")
            if axis.points and error.startswith("E") and outcome.seconds > LONG_S:
                turn = errors[call] = errors.get(call, -1) + 1
                if turn != number % 4:
                    continue
            yield test, axis


def play_all(matrix: Matrix, chosen: Sequence[Axis]) -> None:
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        outcomes = list(pool.map(lambda test: matrix.play(test, PEACE, 20 * LEAST_LIMIT_S), matrix.tests))
        peace = dict(zip((test.name for test in matrix.tests), outcomes, strict=True))
        for name in [name for name, outcome in peace.items() if outcome.failures]:
            print(f"{name} fails in peace: it is left out", flush=True)
        matrix.tests = [test for test in matrix.tests if not peace[test.name].failures]
        pairs = list(cells(matrix, chosen, peace))
        print(f"{len(pairs)} cells", flush=True)
        limits = {name: max(LEAST_LIMIT_S, PATIENCE * outcome.seconds) for name, outcome in peace.items()}
        list(pool.map(lambda pair: matrix.play(pair[0], pair[1], limits[pair[0].name]), pairs))


def draw(matrix: Matrix, seconds: float) -> int:
    """Cells in a drawn order until the time is over. Those whose test does not meet the axis count as nothing."""
    given = os.environ.get("FREESTONE_TEST_SEED")
    seed = int(given, 0) if given else int.from_bytes(os.urandom(4), "little")
    print(f"matrix: FREESTONE_TEST_SEED=0x{seed:x}", flush=True)
    generator = random.Random(seed)
    matrix.tests = [t for t in matrix.tests if not any(fnmatch.fnmatchcase(t.name, p) for p in NOT_DRAWN.split())]
    everything = axes()
    end = time.monotonic() + seconds
    met = 0
    while time.monotonic() < end:
        axis, test = generator.choice(everything), generator.choice(matrix.tests)
        if set(test.builds) & set(axis.builds):
            met += matrix.play(test, axis, LEAST_LIMIT_S).met(axis)
    print(f"{met} cells were met")
    return 1 if matrix.findings() else 0


def report(matrix: Matrix, result: Path | None) -> int:
    total = sum(column.cells for column in matrix.columns.values())
    findings = matrix.findings()
    unused = promises.unused(matrix.used)
    for row in unused:
        print(f"no cell needs this row any more: {row.axes} {row.tests} {row.cases}: {row.reason}")
    print(f"{total} cells, {sum(c.passed for c in matrix.columns.values())} passed, {len(findings)} findings")
    if result:
        stored = {
            "schema": SCHEMA,
            "machine": platform.platform(),
            "cells": total,
            "columns": {name: asdict(column) for name, column in matrix.columns.items()},
        }
        result.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return 1 if findings or unused else 0


def main(words: Sequence[str]) -> int:
    build = Path(os.environ["FREESTONE_BUILD_DIR"])
    matrix = Matrix(tests(build, Path(os.environ["FREESTONE_TROUBLED"])))
    if words[0] == "draw":
        return draw(matrix, float(words[1]) if len(words) > 1 else DRAW_S)
    if words[0] == "whole":
        play_all(matrix, axes())
        return report(matrix, Path(words[1]) if len(words) > 1 else None)
    wanted_axes, wanted_tests = words
    matrix.tests = [test for test in matrix.tests if fnmatch.fnmatchcase(test.name, wanted_tests)]
    play_all(matrix, [axis for axis in axes() if fnmatch.fnmatchcase(axis.name, wanted_axes)])
    return 1 if matrix.findings() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
