"""The suites: every run is accepted by the program, fits the machine, and covers what is promised."""

import re
import subprocess
from pathlib import Path

import pytest
import workload_tools as tools
from peers_tools import compiled

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.report import charts
from freestone_lab.workloads import suites

EVERY = suites.suite("full") + suites.QUICK + suites.HARDENING


def number(text: str) -> int:
    if text.startswith("2^"):
        return 1 << int(text[2:])
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)
    return int(text if scale == 1 else text[:-1]) * scale


def test_every_parameter_is_known_and_in_range() -> None:
    described = tools.described()
    for run in EVERY:
        params = {p["name"]: p for p in described[run.workload]["params"]}
        for name, value in run.params.items():
            param = params[name]
            if param["kind"] == "choice":
                assert value in param["choices"], run.id
                continue
            items = [n for part in str(value).split(",") for n in part.split("..")]
            assert param["list"] or len(items) == 1, run.id
            assert all(param["low"] <= number(n) <= param["high"] for n in items), (run.id, name)


def test_ids_are_unique_and_begin_with_the_workload() -> None:
    ids = [run.id for run in EVERY]
    assert len(ids) == len(set(ids))
    assert all(run.id.startswith(run.workload + "/") for run in EVERY)


def test_the_full_suite_uses_every_workload_but_those_of_hardening() -> None:
    full, hardening = ({run.workload for run in suites.suite(name)} for name in ("full", "hardening"))
    assert full | hardening == set(tools.described()) and not full & hardening


def test_quick_fits_three_minutes_for_six_allocators() -> None:
    per_allocator = sum(run.seconds for run in suites.QUICK)
    # Six allocators and the baseline's twin, a warm-up round and five more.
    assert per_allocator * 7 * 6 <= 180


def test_no_run_asks_for_more_memory_than_the_machine_has() -> None:
    assert max(run.memory_mib for run in EVERY) < 20 * 1024


def test_published_covers_what_the_articles_vary() -> None:
    runs = {run.id: run for run in suites.suite("published")}
    assert [runs[f"throughput/threads={t}"].params["threads"] for t in (1, 8)] == [1, 8]
    assert runs["ring/corrected"].params["threads"] == runs["ring/published"].params["threads"] == "1..128"
    assert runs["ring/published"].params["form"] == "published"
    laws = {run.params.get("law", "program") for run in runs.values() if run.workload == "lifetimes"}
    assert laws == {"article", "program"}


@pytest.fixture(scope="module")
def null(built: Path) -> Path:
    return compiled(built / "null.so", paths.root() / "lab/peers/controls/null.c", "-O2")


@pytest.mark.all
@pytest.mark.parametrize("run", [r for r in suites.QUICK if r.null_fits], ids=lambda r: r.id)
def test_the_quick_suite_runs_under_an_allocator_that_never_frees(run: suites.WorkloadRun, null: Path) -> None:
    out = tools.run(*run.arguments(), preload=null)
    assert (out.status, out.json["failures"]) == (0, 0)
    assert out.json["malloc_owner"] == str(null)
    given = {name: value for name, value in run.params.items() if isinstance(value, int)}
    assert {name: out.json["params"][name] for name in given} == given


# Quick ones of each kind whose blocks one thread asks for: the counter is not made for more.
@pytest.mark.parametrize(
    "identity", ["burst/threads=1", "micro/published", "realloc/append", "larson/mixed", "pair/new"]
)
def test_what_an_allocator_that_never_frees_would_hold_is_what_is_asked_for(identity: str, tmp_path: Path) -> None:
    counter = compiled(tmp_path / "requests.so", Path(__file__).parents[1] / "programs/requests.c", "-O2")
    (run,) = suites.suite(identity)
    command = [str(tools.program()), *run.arguments()]
    done = subprocess.run(command, env={"LD_PRELOAD": str(counter)}, capture_output=True, text=True, check=True)
    asked = [int(n) for n in re.findall(r"^requests: (\d+)$", done.stderr, re.MULTILINE)]
    assert max(asked) / 2**30 == pytest.approx(run.null_gib, rel=0.05)
    assert run.null_fits == (run.null_gib <= suites.MOST_NULL_GIB)


def test_only_experiments_of_a_suite_are_said_to_hold_much() -> None:
    known = {run.id for run in EVERY}
    assert set(suites.NULL_GIB) <= known


def test_a_suite_can_be_asked_for_by_a_workloads_name() -> None:
    assert {run.workload for run in suites.suite("larson")} == {"larson"}
    assert [run.id for run in suites.suite("rss/timeline")] == ["rss/timeline"]
    with pytest.raises(UserError, match="'larsen' is no suite"):
        suites.suite("larsen")


@pytest.mark.parametrize(
    ("processors", "expected"),
    [(1, [1, 2]), (2, [1, 2, 4]), (6, [1, 2, 4, 6, 8, 12]), (64, [1, 2, 4, 8, 16, 32, 64, 128]), (2000, None)],
)
def test_the_counts_go_to_twice_the_processors(processors: int, expected: list[int] | None) -> None:
    counts = suites.thread_counts(processors)
    assert counts == (expected or [1 << k for k in range(11)])


@pytest.mark.parametrize("processors", [1, 2, 48, 256])
def test_every_row_is_one_that_its_workload_takes_and_the_report_draws(processors: int) -> None:
    rows = suites.scaling(processors)
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
    for row in (row for row in suites.scaling(1) if row.params["threads"] == 2):
        done = subprocess.run([str(tools.program()), *row.arguments()], capture_output=True, text=True)
        assert done.returncode == 0, (row.id, done.stderr)


def test_a_row_is_found_by_its_name() -> None:
    (row,) = suites.suite("larson/scaling/threads=2")
    assert row.params["threads"] == 2
