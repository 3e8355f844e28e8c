"""Allocators of known cost are judged as they must be: never wrongly, and rarely left open."""

from __future__ import annotations

import pytest

from freestone_lab.analysis import calibration
from freestone_lab.analysis.calibration import COSTS, Cost

TIMES = 12
SHAPES = ("normal", "one slow run in ten", "beside load")
CLEAR = (Cost(0.9), Cost(memory=0.8), Cost(1.1), Cost(memory=1.2))


@pytest.mark.parametrize("command", calibration.COMMANDS)
@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.name)
def test_known_costs_are_judged_rightly(cost: Cost, command: str) -> None:
    for shape in SHAPES:
        found = calibration.judge(cost, shape, command, TIMES)
        assert not found.answers.get("wrong") and not found.verdicts.get("wrong"), found
        if cost in CLEAR and shape != "beside load":
            assert found.answers.get("right", 0) >= TIMES - 2, found
            assert found.verdicts.get("right", 0) >= TIMES - 2, found


def test_on_a_quiet_machine_nothing_is_left_open_and_the_budget_is_not_used_up() -> None:
    """Runs that differ by 1 % decide in a part of the rounds that the three minutes hold."""
    for cost in COSTS:
        found = calibration.judge(cost, "normal", "compare", TIMES)
        assert found.answers == {"right": TIMES}, found
        assert found.rounds < calibration.COMMANDS["compare"], found


def test_beside_load_more_rounds_decide_more() -> None:
    few, many = (calibration.judge(Cost(0.9), "beside load", command, 40) for command in ("compare", "advise"))
    assert many.answers.get("right", 0) >= 36 and many.answers["right"] >= few.answers.get("right", 0), (few, many)


def test_a_settled_card_recommends_or_keeps() -> None:
    """Measuring goes on while the leader is not shown to be better than the baseline."""
    found = calibration.judge(Cost(0.9), "normal", "advise", 40)
    assert found.answers == {"right": 40}, found
