"""What a ratio lets us say: four verdicts, the A/A control, two sittings. Simulations stand in test_known_costs.py."""

import math

import numpy as np
import pytest

from freestone_lab.analysis import inference, paired
from freestone_lab.analysis.sequential import ERROR_RATE, Estimate


def test_paired_ratio_removes_a_drift_that_both_share() -> None:
    drift = np.linspace(1, 3, 24)
    baseline, other = 10 * drift, 9 * drift
    found = paired.ratio(list(other), list(baseline), ERROR_RATE)
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((0.9, 0.9, 0.9))


def test_ratio_of_too_few_or_impossible_values_is_absent() -> None:
    assert paired.ratio([1.0], [1.0], ERROR_RATE) is None
    assert paired.ratio([1.0, 0.0], [1.0, 1.0], ERROR_RATE) is None
    with pytest.raises(ValueError, match="not pairs"):
        paired.ratio([1.0, 2.0], [1.0], ERROR_RATE)


def test_unpaired_ratio_finds_the_shift() -> None:
    random = np.random.default_rng(5)
    a, b = random.lognormal(math.log(1.2), 0.02, 15), random.lognormal(0, 0.02, 15)
    found = inference.unpaired_ratio(list(a), list(b), ERROR_RATE)
    assert found is not None and 1 < found.low < 1.2 < found.high
    assert inference.unpaired_ratio([], [1.0], ERROR_RATE) is None


def _estimate(ratio: float, low: float, high: float, pairs: int = 12) -> Estimate:
    return Estimate(ratio, low, high, pairs, 0.01)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "floor", "expected"),
    [
        (0.90, 0.88, 0.92, 0.002, "better"),
        (1.10, 1.08, 1.12, 0.002, "worse"),
        (1.001, 0.997, 1.004, 0.002, "same"),
        (1.005, 1.003, 1.007, 0.0, "same"),  # sure, and below one per cent: not worth a claim
        (0.98, 0.96, 1.01, 0.002, "inconclusive"),  # may be four per cent less
        (0.95, 0.93, 0.99, 0.060, "inconclusive"),  # two runs of the same thing show as much
        (0.95, 0.85, 1.05, 0.002, "inconclusive"),  # the interval includes no difference
        (1.0, 0.9, 1.1, 0.3, "inconclusive"),
        (0.5, 0.4, 0.6, math.inf, "inconclusive"),  # no control, no claim
        (0.5, 0.0, math.inf, 0.0, "inconclusive"),  # too few rounds
    ],
)
def test_verdicts(ratio: float, low: float, high: float, floor: float, expected: str) -> None:
    assert inference.verdict(_estimate(ratio, low, high), floor, "lower") == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(1.02, 1.06, "worse"), (0.99, 1.06, "inconclusive"), (0.93, 0.97, "inconclusive")]
)
def test_a_claim_must_hold_against_both_runs_of_the_baseline(low: float, high: float, expected: str) -> None:
    to_control = _estimate((low + high) / 2, low, high)
    assert inference.verdict(_estimate(1.05, 1.03, 1.07), 0.02, "lower", lambda: to_control) == expected


def test_verdict_turns_with_the_direction_of_the_figure() -> None:
    assert inference.verdict(_estimate(1.2, 1.1, 1.3), 0.0, "higher") == "better"
    assert inference.verdict(_estimate(1.2, 1.1, 1.3), 0.0, "neither") == "inconclusive"


def test_summary_is_the_median_not_the_best_run() -> None:
    found = inference.summarise([1.0, 5.0, 5.0, 5.0, 9.0])
    assert (found.median, found.q1, found.q3, found.n) == (5.0, 5.0, 5.0, 5)
    assert found.spread == 0
