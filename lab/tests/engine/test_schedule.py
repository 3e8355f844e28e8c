"""The budget of a long sitting: rounds are shortened, experiments and sizes never."""

from __future__ import annotations

from pathlib import Path

import pytest

from freestone_lab.core.result import Peer
from freestone_lab.engine import schedule, session
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.engine.schedule import Cost
from freestone_lab.workloads import tasks as bench

GLIBC = Peer("glibc", None, "libc")
DEAR, CHEAP = Cost(10, 50), Cost(1, 5)


def test_every_experiment_has_a_round_however_small_the_budget() -> None:
    assert schedule.allot([DEAR, CHEAP, CHEAP], 1) == [1, 1, 1]


def test_nobody_has_a_third_round_before_everybody_has_two() -> None:
    once = 12 + 60  # set-up and one round of each
    assert schedule.allot([DEAR, CHEAP, CHEAP], once + 10) == [1, 2, 2]
    assert schedule.allot([DEAR, CHEAP, CHEAP], once + 10 + 49) == [1, 2, 2]
    assert schedule.allot([DEAR, CHEAP, CHEAP], once + 60) == [2, 2, 2]
    assert schedule.allot([DEAR, CHEAP, CHEAP], once + 70) == [2, 3, 3]


@pytest.mark.parametrize("budget", [1, 100, 500, 1000, 5000])
def test_the_budget_is_kept_where_one_round_fits(budget: float) -> None:
    costs = [DEAR, CHEAP, Cost(3, 20), Cost(0.1, 0.7)]
    rounds = schedule.allot(costs, budget)
    least = schedule.total(costs, [1] * len(costs))
    assert schedule.total(costs, rounds) <= max(budget, least)
    assert all(1 <= r <= schedule.MOST_ROUNDS for r in rounds)


def test_an_allocator_that_cannot_run_costs_nothing() -> None:
    null = Peer("null", "/x.so", "control")
    fits = schedule.cost(Task("a", "w", ("/bin/true",), read="workload"), [GLIBC, null])
    unfit = schedule.cost(Task("a", "w", ("/bin/true",), read="workload", unfit={"null": "it is"}), [GLIBC, null])
    assert fits.round == pytest.approx(1.5 * unfit.round)


def test_a_slow_machine_is_noticed_after_a_while_only() -> None:
    pace = schedule.Pace()
    pace.add(schedule.Pace.LEAST_S / 2, 100)
    assert pace.factor() == 1
    pace.add(schedule.Pace.LEAST_S / 2, 100)
    assert pace.factor() == 200 / schedule.Pace.LEAST_S


def test_the_forecast_names_rounds_allocators_and_time() -> None:
    tasks = [Task(str(i), "w", ("/bin/true",), seconds=s) for i, s in enumerate((0.1, 0.1, 4.0))]
    text = bench.forecast(tasks, [GLIBC], Plan(), 40)
    assert "under 1 allocator: about" in text
    assert text.startswith("3 rounds of 2 and 2 of 1 experiments under")
    assert "which is more than --budget 1 s: one round of each is the least" in bench.forecast(
        tasks, [GLIBC], Plan(), 1
    )


def sitting(work: Path, seconds: float) -> session.Outcome:
    tasks = [Task(f"t{i}", "w", (str(work), "5", "10", "10"), cwd=Path("/"), seconds=0.3) for i in range(3)]
    plan = Plan(min_rounds=10, max_rounds=10, budget_s=None, precision=None)
    return session.run([(t, plan) for t in tasks], [GLIBC], ["x"], lambda p: None, sitting_s=seconds)


def test_a_sitting_runs_every_experiment_and_fewer_rounds(work: Path) -> None:
    outcome = sitting(work, 13)
    rounds = [max(s.round for s in e.samples) for e in outcome.result.experiments]
    assert len(rounds) == 3 and outcome.not_run == {}
    assert min(rounds) >= 1 and sum(rounds) < 3 * 10, rounds  # time that one leaves is the next one's


def test_a_short_sitting_answers_something_and_lists_what_was_not_run(work: Path) -> None:
    outcome = sitting(work, 4)
    assert [e.id for e in outcome.result.experiments] == ["t0"]
    assert max(s.round for s in outcome.result.experiments[0].samples) >= 3
    assert list(outcome.not_run) == ["t1", "t2"]
    assert all("more than is left" in why for why in outcome.not_run.values())
