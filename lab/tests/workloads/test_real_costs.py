"""Real processes with a known cost on top of glibc's are judged by what `compare` and `advise` measure."""

from __future__ import annotations

from pathlib import Path

import peers_tools
import pytest

from freestone_lab.analysis.calibration import COMMANDS, Cost
from freestone_lab.engine.plan import Task
from freestone_lab.workloads import cost_trials


@pytest.fixture
def task(built: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setenv("FREESTONE_BUILD_DIR", str(peers_tools.build_controls(built / "costs")))
    return Task("work", "work", (str(work), "300000", "256"), cwd=work.parent, watched=True)


def test_each_command_is_counted(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_trials, "LIMIT_S", dict.fromkeys(COMMANDS, 5.0))
    said: list[str] = []
    found = cost_trials.real(task, [Cost(1.1)], 1, lambda _: None, said.append)
    assert [j.command for j in found] == list(COMMANDS) and len(said) == 2
    for judgement in found:
        assert sum(judgement.answers.values()) == sum(judgement.verdicts.values()) == 1
        assert not judgement.answers.get("wrong") and not judgement.verdicts.get("wrong"), judgement


@pytest.mark.timing
@pytest.mark.parametrize("cost", cost_trials.REAL_COSTS, ids=lambda cost: cost.name)
def test_known_costs_of_real_processes_are_never_judged_wrongly(cost: Cost, task: Task) -> None:
    for judgement in cost_trials.real(task, [cost], 3, lambda _: None, lambda _: None):
        assert not judgement.answers.get("wrong") and not judgement.verdicts.get("wrong"), judgement
        if cost.cpu >= 1.1:
            assert judgement.command == "advise" or judgement.verdicts.get("right", 0) >= 2, judgement
