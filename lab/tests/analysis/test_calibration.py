"""Every interval that is printed holds the truth as often as it says, for every length and shape of the noise."""

from __future__ import annotations

import random

import pytest

from freestone_lab.analysis import calibration, paired
from freestone_lab.analysis.calibration import KINDS, SHAPES
from freestone_lab.analysis.sequential import LEAST_ROUNDS

TIMES = 400
# With a coverage of 95 %, fewer than 91 % of 400 hold once in 3,000 times; the bounds are wider than that.
LEAST = 0.93


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_printed_interval_holds_the_truth(kind: str, shape: str) -> None:
    found = [calibration.coverage(kind, shape, rounds, TIMES) for rounds in (*range(2, 16), 18, 20, 25, 30)]
    for one in found:
        if one.rounds < LEAST_ROUNDS:
            assert one.printed == 0, "fewer rounds have no interval"
        else:
            assert one.printed > 0.9 * TIMES or one.rounds < 8, one
            assert one.rate is None or one.rate >= LEAST, one


@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_hold_for_who_looks_after_every_round(shape: str) -> None:
    found = calibration.coverage_at_any_look(shape, 60, 200)
    assert found.rate is not None and found.rate >= LEAST, found


def test_one_slow_run_in_ten_hides_no_difference_of_five_per_cent() -> None:
    source = random.Random(1)
    shown = 0
    for _ in range(100):
        other, baseline = calibration.runs("one slow run in ten", (0.95, 1.0), 60, source)
        found = paired.ratio(other, baseline, 0.05 / 45)
        shown += found is not None and found.below
    assert shown >= 90
