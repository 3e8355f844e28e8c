"""Suites, workloads, applications and the default programs as tasks of the engine; how long these will take."""

import dataclasses
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import workload_tools
from conftest import GLIBC

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.engine import preparation, session
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.experiment import Engine
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.workloads import apps, defaults, suites
from freestone_lab.workloads import tasks as bench

ONCE = Plan(rounds=1)


@pytest.fixture(scope="module")
def program() -> Path:
    path = paths.build_dir() / suites.PROGRAM
    if not path.exists():
        pytest.skip("the workload program is not built")
    return path


def silent(text: str) -> None:
    raise AssertionError(f"nothing was to be said: {text}")


@pytest.mark.parametrize("name", [name for name in suites.SUITES if name not in suites.WITH_APPS])
def test_a_suite_becomes_one_task_per_row(program: Path, name: str) -> None:
    tasks = bench.select([name], program, silent)
    assert [t.id for t in tasks] == [row.id for row in suites.SUITES[name]]
    assert all(t.read == "workload" and t.argv[0] == str(program) for t in tasks)
    assert all(t.timeout_s is not None and t.timeout_s >= bench.LEAST_TIMEOUT_S for t in tasks)


def test_names_may_overlap_without_repeating_an_experiment(program: Path) -> None:
    row = suites.SUITES["quick"][0]
    tasks = bench.select(["quick", row.workload, row.id], program, silent)
    assert len({t.id for t in tasks}) == len(tasks)


def test_a_workload_with_parameters(program: Path) -> None:
    (task,) = bench.select(["pair:size=64,rounds=20000"], program, silent)
    assert task.argv == (str(program), "pair", "--size=64", "--rounds=20000")
    assert task.id == "pair:size=64,rounds=20000"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nosuch", "no suite, workload or application is named 'nosuch'; there are: quick"),
        ("pair:foo=1", "pair has no parameter 'foo'; it has size"),
        ("pair:size", "expected pair:PARAMETER=VALUE,..., found 'size'"),
        ("pair:", "expected pair:PARAMETER=VALUE,..., found ''"),
        ("lifetimes:threads=abc", "--threads=abc: expected a whole number"),
        ("lifetimes:threads=0", "--threads=0: expected"),
        ("lifetimes:law=no", "--law=no: expected one of program|article"),
        ("pair:size=64,", "expected pair:PARAMETER=VALUE,..., found ''"),
    ],
)
def test_wrong_names_are_named(program: Path, name: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        bench.select([name], program, silent)
    assert expected in str(caught.value)


def test_allocators_may_stand_in_one_word_and_one_may_be_named_after_it_is_described(
    controls: dict[str, Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"mine={controls['passthrough'].path}"
    alone = preparation.choose_peers([], ["passthrough", "null", spec])
    assert [p.name for p in alone] == ["glibc", "passthrough", "null", "mine"]
    assert preparation.choose_peers([], ["passthrough,null", spec]) == alone
    monkeypatch.setattr(preparation, "_ensure_library", lambda _: None)
    preparation.get_ready([], None, False, silent, spec, "mine")
    assert [p.name for p in preparation.choose_peers([spec], ["mine"])] == ["glibc", "mine"]
    with pytest.raises(UserError, match=r"/nowhere/a,b\.so"):
        preparation.choose_peers(["x=/nowhere/a,b.so"], [])


def test_absent_applications_are_skipped_and_said(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = dataclasses.replace(apps.APPS[0], program="freestone-no-such-program")
    monkeypatch.setattr(apps, "available", lambda names: ([], [absent]))
    said: list[str] = []
    assert bench.select(["apps"], program, said.append) == []
    assert len(said) == 1 and absent.name in said[0] and "skipped" in said[0]


def test_an_application_keeps_its_checks(tmp_path: Path) -> None:
    command = apps.Command("x", "an x", ("/bin/echo", "wrong"), tmp_path, expects=("right",), caveats=("a caveat",))
    task = bench.app_task(command)
    assert (task.id, task.workload, task.caveats) == ("app/x", "an x", ("a caveat",))
    with pytest.raises(UserError, match="the output lacks 'right'"):
        Engine(task, [GLIBC], "glibc", ONCE, lambda p: None).measure()


def test_the_null_allocators_cost_stands_beside_a_workload(program: Path, controls: dict[str, Peer]) -> None:
    (task,) = bench.select(["pair:size=64,rounds=20000,idle-ms=0"], program, silent)
    null = dataclasses.replace(controls["null"], kind="control")
    found = Engine(task, [GLIBC, null], "glibc", dataclasses.replace(ONCE, rounds=2), lambda p: None).measure()
    assert {s.status for s in found.samples} == {"ok"}
    values = {s.peer: s.figures["pair_ns"] for s in found.samples}
    assert values.keys() == {"glibc", "glibc again", "null"}
    assert all(v > 0 for v in values.values())
    assert all(s.counts["pair_ns"] > 0 for s in found.samples)


def test_the_default_jobs_are_a_server_a_heap_an_interpreter_a_database_and_a_compiler(tmp_path: Path) -> None:
    found = {task.id: task for task in defaults.tasks(tmp_path)}
    assert set(found) >= {"server", "heap", "python"} and set(found) <= {"server", "heap", "python", "sqlite3", "g++"}
    assert all(Path(task.argv[0]).exists() for task in found.values())
    assert (found["server"].argv[1], found["heap"].argv[1]) == ("server", "drift")


@pytest.mark.timing
def test_the_default_jobs_are_short_and_print_the_same_twice(tmp_path: Path) -> None:
    for task in defaults.tasks(tmp_path):
        found = Engine(task, [GLIBC], "glibc", ONCE, lambda p: None).measure()
        assert {s.status for s in found.samples} == {"ok"}, task.id
        assert not [text for text in found.caveats if "differs between two runs" in text], task.id
        assert 0.01 < found.samples[0].figures["cpu"] < 0.6, task.id


def test_an_experiment_that_fails_under_the_baseline_is_left_out_and_said(work: Path) -> None:
    tasks = [Task("bad", "w", ("/bin/false",), cwd=Path("/")), Task("good", "w", (str(work),), cwd=Path("/"))]
    said: list[str] = []
    outcome = session.Sitting([(t, ONCE) for t in tasks], [GLIBC], ["x"], lambda p: None, say=said.append).run()
    assert [e.id for e in outcome.result.experiments] == ["good"]
    assert said == ["'/bin/false' fails under glibc: exit status 1"]


@pytest.mark.parametrize("budget", [1, 100, 500, 1000, 5000])
def test_the_rounds_foretold_fit_the_budget(budget: float) -> None:
    costs = [bench.Cost(10, 50), bench.Cost(1, 5), bench.Cost(3, 20), bench.Cost(0.1, 0.7)]
    rounds = bench.rounds_within(costs, budget, 10)
    assert 0 <= rounds <= 10
    assert bench.total(costs, rounds) <= max(budget, bench.total(costs, 0))
    assert rounds == 10 or bench.total(costs, rounds + 1) > budget


def test_an_allocator_that_cannot_run_costs_nothing() -> None:
    null = Peer("null", "/x.so", "control")
    fits = bench.cost(Task("a", "w", ("/bin/true",), read="workload"), [GLIBC, null])
    unfit = bench.cost(Task("a", "w", ("/bin/true",), read="workload", unfit={"null": "it is"}), [GLIBC, null])
    assert fits.round == pytest.approx(1.5 * unfit.round)


def test_the_forecast_names_rounds_allocators_and_time() -> None:
    tasks = [Task(str(i), "w", ("/bin/true",), seconds=s) for i, s in enumerate((0.1, 0.1, 4.0))]
    plan = bench.plan(None, 1)
    assert bench.forecast(tasks, [GLIBC], plan, 80).startswith("6 rounds of 3 experiments under 1 allocator: about")
    short = bench.forecast(tasks, [GLIBC], plan, 10)
    assert "too short" in short and "what there is no time for will be named" in short


def sitting(work: Path, seconds: float) -> session.Outcome:
    task = Task("", "w", (str(work), "5", "10", "10"), cwd=Path("/"), seconds=0.3)
    plans = [(dataclasses.replace(task, id=f"t{i}"), Plan(rounds=10)) for i in range(3)]
    return session.Sitting(plans, [GLIBC], ["x"], lambda p: None, budget=Budget(seconds)).run()


def test_a_sitting_runs_every_experiment(work: Path) -> None:
    outcome = sitting(work, 600)
    rounds = [max(s.round for s in e.samples) for e in outcome.result.experiments]
    assert rounds == [10, 10, 10] and outcome.not_run == {}


SHORT_S = 0.6  # of CPU time; 0.05 to 0.09 s where nobody else works


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    monkeypatch.setattr(bench, "workload_program", workload_tools.program)
    return defaults.tasks(tmp_path)


def cpu_seconds(job: Task) -> float:
    before = os.times()
    with (job.stdin or Path(os.devnull)).open("rb") as stdin:
        subprocess.run(job.argv, env={**os.environ, **job.env}, stdin=stdin, capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@pytest.mark.timing
def test_each_program_is_short_so_that_the_budget_holds_many_rounds(jobs: list[Task]) -> None:
    assert Counter(job.id for job in jobs)["python"] == 1 and len(jobs) >= 3
    for job in jobs:
        assert min(cpu_seconds(job) for _ in range(3)) < SHORT_S, job.id
        assert job.seconds <= 0.1, job.id


def test_the_compiler_is_one_process_which_can_be_pinned(jobs: list[Task]) -> None:
    compiler = next((job for job in jobs if job.id == "g++"), None)
    if compiler is None:
        pytest.skip("g++ is not installed")
    assert compiler.argv[0].endswith("cc1plus")
    cpu_seconds(compiler)
    assert compiler.output_files[0].stat().st_size > 10_000


def test_threads_that_wait_for_each_other_use_no_cpu_time_for_it(jobs: list[Task]) -> None:
    """A waiting thread that yields is charged with CPU time that no allocator causes."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    server = next(job for job in jobs if job.id == "server")
    words = ["strace", "-f", "-c", "-e", "trace=sched_yield", *server.argv]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    yields = [int(line.split()[3]) for line in said.splitlines() if line.endswith("sched_yield")]
    assert sum(yields) < 100, said  # thousands where threads wait by yielding
