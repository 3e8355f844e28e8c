"""The matrix: every test that loads the library, once under each axis that it meets.

    python3 -m matrix.run draw [SECONDS]              a drawn part; FREESTONE_TEST_SEED repeats one
    python3 -m matrix.run whole RESULT.json           all of it; started again, it goes on where it was interrupted
    python3 -m matrix.run AXIS TEST                   these cells; patterns as in a shell

FREESTONE_BUILD_DIR is the build folder, FREESTONE_TROUBLED the folder of the matrix's libraries. First each test runs
in peace, which tells what it asks the kernel for. RESULT.json.cells keeps every cell that has ended, for as long as the
libraries stay the same. Ends with 1 when something failed that promises.py does not excuse, and with 130 when it was
interrupted.
"""

from __future__ import annotations

import fnmatch
import json
import os
import platform
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from matrix import promises
from matrix.axes import Axis, alike, axes, in_turn, kind
from matrix.cells import Failure, Outcome, Stopped, Test, line, run, stopping, tests
from matrix.journal import Entry, Journal, identity, opened

SCHEMA = "freestone-matrix/2"
PEACE = Axis("peace")
DRAW_S = 15.0
LEAST_LIMIT_S = 600.0
PATIENCE = 40.0  # what takes so many times as long as in peace hangs
LONG_S = 1.0  # of the processor, in peace
INTERRUPTED = 130
# Too long for a drawn part, whatever the machine.
NOT_DRAWN = "fault.syscalls.* fault.rlimit.* fault.refusal.* fault.refused_purge* fault.used_up.* fault.enumerated.* \
stress.fork* stress.exit.* footprint.* preload.programs.* sampling.* api.written_statistics.* api.cgroup.* \
api.across_fork.* api.clearing.*"
# The whole matrix has not judged the cells of these yet.
NOT_JUDGED = "fault.enumerated* fault.states.* fault.large_runs.* fault.children.* fault.guesses.* fault.reuse.* \
fault.trim.* stress.lives.* fault.refusal_limited.hardened fault.address_space.hardened abi.bad_pointer* \
abi.memory_calls.* abi.misuse_line.* abi.options.* abi.near_limit.hardened abi.c_names.* abi.cxx_operators.hardened \
api.limits* api.redis.* api.statistics.hardened \
api.statistics.sampled preload.loading.* preload.operators.hardened model.*"
# Why a test does not run under an axis.
PROVES_NOTHING = "promises.py says that all of the test proves nothing there"
SKIPS = "in peace the test skips all of its cases"
NO_SUCH_CALL = "in peace the test asks for no such call"
OTHER_BUILD = "the other build has this option"
SAME_ERROR = "the library does not tell this error from another, which the test meets"
OTHER_DEGREE = "the test takes more than a second and meets another axis of this kind"


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
    """What one axis gave. `excused` counts cases by the reason; `unsteady`: cells that passed at their second run;
    `missing`: cells that have not run yet."""

    cells: int = 0
    missing: int = 0
    skipped: int = 0
    passed: int = 0
    cpu_seconds: float = 0.0
    excused: dict[str, int] = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Plan:
    """The cells that are to run, axis by axis, and how many pairs of a test and an axis are none, by the reason."""

    cells: list[tuple[Axis, Test]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


class Matrix:
    def __init__(self, chosen: Sequence[Test]) -> None:
        self.tests = [t for t in chosen if not any(fnmatch.fnmatchcase(t.name, p) for p in promises.LEFT_OUT)]
        self.journal = Journal()
        self.planned = Plan()

    def play(self, test: Test, axis: Axis, limit_s: float) -> Outcome:
        """Runs a cell and enters it. A case that only missed something may do so once: time and load are no axis."""
        outcome = run(test, axis, limit_s)
        unsteady = False
        found = problems(outcome, test.name, axis)
        if found and not any(failure.hurt for failure in found):
            outcome = run(test, axis, limit_s)
            found = problems(outcome, test.name, axis)
            unsteady = not found
        self.journal.enter(Entry(axis.name, test.name, outcome, unsteady))
        for failure in found:
            how = "HURT" if failure.hurt else "missed"
            print(f"{how}: {axis.name} {test.name} {failure.case}\n  {line(test, axis)}", flush=True)
        return outcome

    def peace(self) -> dict[str, Outcome]:
        """How the tests that hold there ended."""
        entries = {test.name: self.journal.entries.get((PEACE.name, test.name)) for test in self.tests}
        return {name: e.outcome for name, e in entries.items() if e and not problems(e.outcome, name, PEACE)}


def problems(outcome: Outcome, test: str, axis: Axis, excused: list[promises.Row] | None = None) -> list[Failure]:
    """The failures that no row excuses. The rows that excuse one are added to `excused`."""
    result = []
    for failure in outcome.failures:
        row = promises.row_for(axis, test, failure.case, failure.hurt)
        if row is None:
            result.append(failure)
        elif excused is not None:
            excused.append(row)
    return result


def plan(chosen: Sequence[Axis], everything: Sequence[Test], peace: dict[str, Outcome]) -> Plan:
    result = Plan()
    degrees: dict[str, list[str]] = {}
    for axis in chosen:
        degrees.setdefault(kind(axis), []).append(axis.name)
    for axis in chosen:
        for test in everything:
            outcome = peace.get(test.name)
            if outcome is None:  # a finding already
                continue
            if reason := why_not(axis, test, outcome, degrees[kind(axis)]):
                result.leave_out(reason)
            else:
                result.cells.append((axis, test))
    result.cells.sort(key=lambda cell: peace[cell[1].name].cpu_seconds)  # most is found soon
    return result


def why_not(axis: Axis, test: Test, peace: Outcome, degrees: Sequence[str]) -> str | None:
    if not set(test.builds) & set(axis.builds):
        return OTHER_BUILD
    if peace.skipped:
        return SKIPS
    if not peace.met(axis):
        return NO_SUCH_CALL
    if promises.is_void(axis, test.name):
        return PROVES_NOTHING
    if in_turn(alike(axis), test.name) != axis.name:
        return SAME_ERROR
    if peace.cpu_seconds > LONG_S and in_turn(degrees, test.name) != axis.name:
        return OTHER_DEGREE
    return None


@contextmanager
def interruptible() -> Iterator[None]:
    """A signal that asks for the end raises KeyboardInterrupt here, and the cells in progress are ended."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        stopping.set()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def play_cells(matrix: Matrix, cells: Sequence[tuple[Axis, Test]], limits: dict[str, float]) -> None:
    """Those that have not run yet, as many at once as there are processors."""
    due = [(axis, test) for axis, test in cells if (axis.name, test.name) not in matrix.journal.entries]
    print(f"{len(cells)} cells, {len(due)} to run", flush=True)

    def one(axis: Axis, test: Test) -> None:
        with suppress(Stopped):
            matrix.play(test, axis, limits.get(test.name, 20 * LEAST_LIMIT_S))

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            with interruptible():
                for ended in as_completed([pool.submit(one, axis, test) for axis, test in due]):
                    ended.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def play_all(matrix: Matrix, chosen: Sequence[Axis]) -> None:
    entries = matrix.journal.entries
    # What failed in peace runs again: the cells of that test depend on it.
    for key in [key for key, entry in entries.items() if key[0] == PEACE.name and entry.outcome.failures]:
        del entries[key]
    stopping.clear()
    in_peace = [(PEACE, test) for test in matrix.tests]
    matrix.planned = Plan(in_peace)
    play_cells(matrix, in_peace, {})
    peace = matrix.peace()
    for name in [test.name for test in matrix.tests if test.name not in peace]:
        print(f"{name} fails in peace: it is left out", flush=True)
    further = plan(chosen, matrix.tests, peace)
    matrix.planned = Plan(in_peace + further.cells, further.left_out)
    limits = {name: max(LEAST_LIMIT_S, PATIENCE * outcome.seconds) for name, outcome in peace.items()}
    play_cells(matrix, further.cells, limits)


def draw(matrix: Matrix, seconds: float) -> int:
    """Cells in a drawn order until the time is over. Those whose test does not meet the axis count as nothing."""
    given = os.environ.get("FREESTONE_TEST_SEED")
    seed = int(given, 0) if given else int.from_bytes(os.urandom(4), "little")
    print(f"matrix: FREESTONE_TEST_SEED=0x{seed:x}", flush=True)
    generator = random.Random(seed)
    left_out = NOT_DRAWN.split() + NOT_JUDGED.split()
    matrix.tests = [t for t in matrix.tests if not any(fnmatch.fnmatchcase(t.name, p) for p in left_out)]
    everything = axes()
    end = time.monotonic() + seconds
    met = 0
    found = 0
    while time.monotonic() < end:
        axis, test = generator.choice(everything), generator.choice(matrix.tests)
        if set(test.builds) & set(axis.builds):
            outcome = matrix.play(test, axis, LEAST_LIMIT_S)
            met += outcome.met(axis)
            found += len(problems(outcome, test.name, axis))
    print(f"{met} cells were met")
    return 1 if found else 0


def columns(matrix: Matrix, used: set[promises.Row]) -> dict[str, Column]:
    """What each axis gave, judged by the promises as they are now."""
    result: dict[str, Column] = {}
    for axis, test in matrix.planned.cells:
        column = result.setdefault(axis.name, Column())
        entry = matrix.journal.entries.get((axis.name, test.name))
        if entry is None:
            column.missing += 1
            continue
        outcome = entry.outcome
        excused: list[promises.Row] = []
        for failure in problems(outcome, test.name, axis, excused):
            again = line(test, axis)
            column.findings.append(
                Finding(axis.name, test.name, failure.case, failure.hurt, failure.text[-3000:], again)
            )
        for row in excused:
            used.add(row)
            reason = f"not fixed yet: {row.reason}" if row.kind is promises.Kind.OPEN else row.reason
            column.excused[reason] = column.excused.get(reason, 0) + 1
        column.cells += 1
        column.skipped += outcome.skipped
        column.passed += not outcome.skipped and not outcome.failures
        column.cpu_seconds += outcome.cpu_seconds
        if entry.unsteady:
            column.unsteady.append(test.name)
    return result


def report(matrix: Matrix, build: str, result: Path) -> int:
    """Writes the result. 1 if it has findings."""
    used: set[promises.Row] = set()
    made = columns(matrix, used)
    missing = sum(column.missing for column in made.values())
    is_whole = missing == 0 and len(made) > 1
    findings = [finding for column in made.values() for finding in column.findings]
    unused = promises.unused(used) if is_whole else []
    for row in unused:
        print(f"no cell needs this row any more: {row.axes} {row.tests} {row.cases}: {row.reason}")
    cells = sum(column.cells for column in made.values())
    passed = sum(column.passed for column in made.values())
    print(f"{cells} cells, {missing} missing, {passed} passed, {len(findings)} findings")
    stored = {
        "schema": SCHEMA,
        "machine": platform.platform(),
        "build": build,
        "whole": is_whole,
        "tests": len(matrix.tests),
        "cells": cells,
        "missing": missing,
        "cpu_seconds": round(sum(column.cpu_seconds for column in made.values())),
        "left_out": matrix.planned.left_out,
        "columns": {name: asdict(column) for name, column in made.items()},
    }
    result.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return 1 if findings or unused or missing else 0


def whole(matrix: Matrix, chosen: Sequence[Axis], build: str, result: Path) -> int:
    with opened(result.with_name(result.name + ".cells"), build) as matrix.journal:
        try:
            play_all(matrix, chosen)
        except KeyboardInterrupt:
            report(matrix, build, result)
            print("interrupted; the same command goes on from here")
            return INTERRUPTED
        return report(matrix, build, result)


def some(matrix: Matrix, wanted_axes: str, wanted_tests: str) -> int:
    matrix.tests = [test for test in matrix.tests if fnmatch.fnmatchcase(test.name, wanted_tests)]
    play_all(matrix, [axis for axis in axes() if fnmatch.fnmatchcase(axis.name, wanted_axes)])
    return 1 if any(column.findings for column in columns(matrix, set()).values()) else 0


def main(words: Sequence[str]) -> int:
    build, libraries = Path(os.environ["FREESTONE_BUILD_DIR"]), Path(os.environ["FREESTONE_TROUBLED"])
    matrix = Matrix(tests(build, libraries))
    if words[0] == "draw":
        return draw(matrix, float(words[1]) if len(words) > 1 else DRAW_S)
    if words[0] == "whole":
        build_id = identity(sorted(libraries.glob("libfreestone*.so.1")))
        return whole(matrix, axes(), build_id, Path(words[1]))
    return some(matrix, *words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
