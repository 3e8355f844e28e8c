"""The forecast of a long sitting, and what a budget leaves out: whole experiments, never allocators or sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from freestone_lab.core.result import Peer
from freestone_lab.engine import schedule, session
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.engine.schedule import Cost
from freestone_lab.workloads import tasks as bench

GLIBC = Peer("glibc", None, "libc")


@pytest.mark.parametrize("budget", [1, 100, 500, 1000, 5000])
def test_the_rounds_foretold_fit_the_budget(budget: float) -> None:
    costs = [Cost(10, 50), Cost(1, 5), Cost(3, 20), Cost(0.1, 0.7)]
    rounds = schedule.rounds_within(costs, budget, 10)
    assert 0 <= rounds <= 10
    assert schedule.total(costs, rounds) <= max(budget, schedule.total(costs, 0))
    assert rounds == 10 or schedule.total(costs, rounds + 1) > budget


def test_an_allocator_that_cannot_run_costs_nothing() -> None:
    null = Peer("null", "/x.so", "control")
    fits = schedule.cost(Task("a", "w", ("/bin/true",), read="workload"), [GLIBC, null])
    unfit = schedule.cost(Task("a", "w", ("/bin/true",), read="workload", unfit={"null": "it is"}), [GLIBC, null])
    assert fits.round == pytest.approx(1.5 * unfit.round)


def test_the_forecast_names_rounds_allocators_and_time() -> None:
    tasks = [Task(str(i), "w", ("/bin/true",), seconds=s) for i, s in enumerate((0.1, 0.1, 4.0))]
    plan = bench.plan(None, 1)
    assert bench.forecast(tasks, [GLIBC], plan, 80).startswith("6 rounds of 3 experiments under 1 allocator: about")
    short = bench.forecast(tasks, [GLIBC], plan, 10)
    assert "too short" in short and "what there is no time for will be named" in short


def sitting(work: Path, seconds: float) -> session.Outcome:
    tasks = [Task(f"t{i}", "w", (str(work), "5", "10", "10"), cwd=Path("/"), seconds=0.3) for i in range(3)]
    return session.run([(t, Plan(rounds=10)) for t in tasks], [GLIBC], ["x"], lambda p: None, budget=Budget(seconds))


def test_a_sitting_runs_every_experiment(work: Path) -> None:
    outcome = sitting(work, 600)
    rounds = [max(s.round for s in e.samples) for e in outcome.result.experiments]
    assert rounds == [10, 10, 10] and outcome.not_run == {}
