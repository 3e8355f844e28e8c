"""The suite `scaling` asks for every count of threads up to twice the processors, with the same work in each thread."""

from __future__ import annotations

import subprocess

import pytest
import workload_tools as tools

from freestone_lab.report import charts
from freestone_lab.workloads import scaling, suites


@pytest.mark.parametrize(
    ("processors", "expected"),
    [(1, [1, 2]), (2, [1, 2, 4]), (6, [1, 2, 4, 6, 8, 12]), (64, [1, 2, 4, 8, 16, 32, 64, 128]), (2000, None)],
)
def test_the_counts_go_to_twice_the_processors(processors: int, expected: list[int] | None) -> None:
    counts = scaling.thread_counts(processors)
    assert counts == (expected or [1 << k for k in range(11)])


@pytest.mark.parametrize("processors", [1, 2, 48, 256])
def test_every_row_is_one_that_its_workload_takes_and_the_report_draws(processors: int) -> None:
    rows = scaling.scaling(processors)
    assert len({row.id for row in rows}) == len(rows)
    stems = {charts.without_axis(row.id, "threads") for row in rows}
    assert stems == {f"{row.workload}/scaling" for row in rows}
    described = tools.described()
    for row in rows:
        params = {p["name"]: p for p in described[row.workload]["params"]}
        threads = row.params["threads"]
        assert isinstance(threads, int)
        assert params["threads"]["low"] <= threads <= params["threads"]["high"], row.id
        assert set(row.params) <= set(params), row.id


def test_a_row_works_with_twice_the_threads_that_there_are_processors() -> None:
    for row in (row for row in scaling.scaling(1) if row.params["threads"] == 2):
        done = subprocess.run([str(suites.program()), *row.arguments()], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (row.id, done.stderr)


def test_a_row_is_found_by_its_name() -> None:
    (row,) = suites.suite("larson/scaling/threads=2")
    assert row.params["threads"] == 2
