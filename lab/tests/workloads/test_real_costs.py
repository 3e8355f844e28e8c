"""Real processes with a known cost on top of glibc's are judged by what `compare` and `advise` measure."""

from __future__ import annotations

from pathlib import Path

import peers_tools
import pytest
from command_tools import freestone

from freestone_lab.analysis.calibration import Cost
from freestone_lab.core import builds
from freestone_lab.core.errors import UserError
from freestone_lab.engine.plan import Task
from freestone_lab.workloads import cost_trials


@pytest.fixture
def task(built: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setenv("FREESTONE_BUILD_DIR", str(peers_tools.build_controls(built / "costs")))
    return Task("work", "work", (str(work), "300000", "256"), cwd=work.parent, watched=True)


def test_each_cost_is_judged_and_counted(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_trials, "REAL_S", 5.0)
    said: list[str] = []
    costs = [Cost(), Cost(1.1)]
    found = cost_trials.real(task, costs, 1, lambda _: None, said.append)
    assert [j.cost for j in found] == [cost.name for cost in costs] and len(said) == 2
    for judgement in found:
        assert sum(judgement.answers.values()) == sum(judgement.verdicts.values()) == 1
        assert not judgement.answers.get("wrong") and not judgement.verdicts.get("wrong"), judgement


def test_the_command_that_stores_all_takes_about_twenty_minutes() -> None:
    """What docs and help name: simulations of seven minutes of CPU time, and eight sittings of each real cost."""
    assert 7.5 * 60 + 8 * len(cost_trials.REAL_COSTS) * cost_trials.REAL_S <= 20 * 60


@pytest.mark.timing
@pytest.mark.parametrize("cost", cost_trials.REAL_COSTS, ids=lambda cost: cost.name)
def test_known_costs_of_real_processes_are_never_judged_wrongly(cost: Cost, task: Task) -> None:
    for judgement in cost_trials.real(task, [cost], 3, lambda _: None, lambda _: None):
        assert not judgement.answers.get("wrong") and not judgement.verdicts.get("wrong"), judgement
        if cost.cpu >= 1.1:
            assert judgement.verdicts.get("right", 0) >= 2, judgement


def test_the_control_is_built_before_anything_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fresh clone the command simulated for minutes, and then knew no allocator of that name."""

    def missing(name: str) -> Path:
        raise UserError(f"asked for {name}")

    monkeypatch.setattr(builds, "built", missing)
    done = freestone(tmp_path, "bench", "known-costs", "--real", "1", "-o", "known.json")
    assert done.returncode == 2 and f"asked for {cost_trials.CONTROL}" in done.stderr
    lone = freestone(tmp_path, "bench", "known-costs", "--", "true")
    assert lone.returncode == 2 and "--real N sittings" in lone.stderr
