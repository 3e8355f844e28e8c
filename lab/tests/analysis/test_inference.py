"""The statistics against scipy, against published worked examples, and against simulations of what they claim."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from freestone_lab.analysis import inference

# Hollander and Wolfe, Nonparametric Statistical Methods, table 3.1: depression scale factors before and after.
HAMILTON_BEFORE = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
HAMILTON_AFTER = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]


def test_signed_rank_matches_the_published_example() -> None:
    differences = np.array(HAMILTON_BEFORE) - np.array(HAMILTON_AFTER)
    assert inference.signed_rank_p(differences) == pytest.approx(0.0390625)


@pytest.mark.parametrize("n", [5, 6, 9, 14, 20, 33])
def test_signed_rank_equals_scipys_exact_test(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1, n)
    assert inference.signed_rank_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


def test_signed_rank_of_nothing_but_zeros_claims_nothing() -> None:
    assert inference.signed_rank_p(np.zeros(12)) == 1.0


def test_signed_rank_with_ties_equals_enumeration() -> None:
    differences = np.array([1.0, 1.0, -1.0, 2.0, 2.0, 3.0, 3.0, 3.0])
    ranks = stats.rankdata(np.abs(differences))
    observed = ranks[differences > 0].sum()
    centre = ranks.sum() / 2
    sums = [sum(r for i, r in enumerate(ranks) if mask >> i & 1) for mask in range(1 << len(ranks))]
    expected = sum(abs(s - centre) >= abs(observed - centre) for s in sums) / len(sums)
    assert inference.signed_rank_p(differences) == pytest.approx(expected)


def test_holm_matches_the_worked_example() -> None:
    # Holm (1979) as worked in the multiple-comparison literature: p = .01, .04, .03, .005.
    assert inference.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert inference.holm([]) == []
    assert inference.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("n", [8, 10, 20, 40])
def test_bca_interval_agrees_with_scipy_within_neighbouring_order_statistics(n: int) -> None:
    values = np.random.default_rng(n).lognormal(0, 0.1, n)
    low, high = inference.median_interval(values, seed=1)
    ours = stats.bootstrap((values,), np.median, n_resamples=10_000, method="BCa", rng=1).confidence_interval
    # The bootstrap distribution of a median is discrete: two seeds may fall on neighbouring steps.
    steps = np.sort(inference.bootstrap_medians(values, 1))
    for mine, theirs in ((low, ours.low), (high, ours.high)):
        between = abs(np.searchsorted(steps, mine) - np.searchsorted(steps, theirs)) / len(steps)
        assert between < 0.02 or mine == pytest.approx(theirs)


def test_bca_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    hits = 0
    for trial in range(400):
        values = random.normal(0, 1, 20)
        low, high = inference.median_interval(values, seed=trial)
        hits += low <= 0 <= high
    assert 0.90 <= hits / 400 <= 0.99


def test_interval_of_equal_values_has_no_width() -> None:
    assert inference.median_interval(np.full(10, 3.0)) == (3.0, 3.0)


def test_paired_ratio_removes_a_drift_that_both_share() -> None:
    drift = np.linspace(1, 3, 12)
    baseline, other = 10 * drift, 9 * drift
    found = inference.paired_ratio(list(other), list(baseline))
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((0.9, 0.9, 0.9))


def test_ratio_of_too_few_or_impossible_values_is_absent() -> None:
    assert inference.paired_ratio([1.0], [1.0]) is None
    assert inference.paired_ratio([1.0, 0.0], [1.0, 1.0]) is None
    with pytest.raises(ValueError, match="not pairs"):
        inference.paired_ratio([1.0, 2.0], [1.0])


def test_cliffs_delta_is_the_probability_of_superiority() -> None:
    a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0])
    expected = (np.mean([[x > y for y in b] for x in a])) - (np.mean([[x < y for y in b] for x in a]))
    assert inference.cliffs_delta(a, b) == pytest.approx(expected)
    assert inference.cliffs_delta(a + 10, b) == 1.0


def test_unpaired_ratio_finds_the_shift_and_its_significance() -> None:
    random = np.random.default_rng(5)
    a, b = random.lognormal(math.log(1.2), 0.02, 15), random.lognormal(0, 0.02, 15)
    found = inference.unpaired_ratio(list(a), list(b))
    assert found is not None
    assert found.low < 1.2 < found.high
    assert found.p < 0.001


def _estimate(ratio: float, low: float, high: float, pairs: int = 12) -> inference.Estimate:
    return inference.Estimate(ratio, low, high, pairs, 0.001, 0.0)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "p", "floor", "expected"),
    [
        (0.90, 0.88, 0.92, 0.01, 0.002, "better"),
        (1.10, 1.08, 1.12, 0.01, 0.002, "worse"),
        (1.001, 0.997, 1.004, 0.5, 0.002, "same"),
        (1.005, 1.003, 1.007, 0.01, 0.0, "same"),  # sure, and below one per cent: not worth a claim
        (0.90, 0.88, 0.92, 0.20, 0.002, "inconclusive"),  # not significant after correction
        (0.97, 0.95, 0.99, 0.01, 0.040, "inconclusive"),  # beyond nothing but inside the noise floor
        (0.95, 0.85, 1.05, 0.01, 0.002, "inconclusive"),  # the interval includes no difference
        (1.0, 0.9, 1.1, 0.9, 0.3, "inconclusive"),  # so noisy that "same" would say nothing
        (0.5, 0.4, 0.6, 0.001, math.inf, "inconclusive"),  # no control, no claim
    ],
)
def test_verdicts(ratio: float, low: float, high: float, p: float, floor: float, expected: str) -> None:
    assert inference.verdict(_estimate(ratio, low, high), p, floor, "lower") == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.02, 1.06, "worse"), (0.99, 1.06, "inconclusive"), (0.93, 0.97, "inconclusive")],
)
def test_a_claim_must_hold_against_both_runs_of_the_baseline(low: float, high: float, expected: str) -> None:
    to_control = _estimate((low + high) / 2, low, high)
    assert inference.verdict(_estimate(1.05, 1.03, 1.07), 0.001, 0.02, "lower", lambda: to_control) == expected


def test_verdict_turns_with_the_direction_of_the_figure() -> None:
    assert inference.verdict(_estimate(1.2, 1.1, 1.3), 0.001, 0.0, "higher") == "better"
    assert inference.verdict(_estimate(1.2, 1.1, 1.3), 0.001, 0.0, "neither") == "inconclusive"


def test_same_needs_enough_pairs() -> None:
    assert inference.verdict(_estimate(1.0, 1.0, 1.0, pairs=5), 1.0, 0.0, "lower") == "inconclusive"


def _simulated(random: np.random.Generator, rounds: int, factor: float) -> tuple[list[float], list[float], list[float]]:
    """Baseline, its second run and a rival: skewed noise, rare interruptions, and a drift that all share."""
    drift = np.exp(np.cumsum(random.normal(0, 0.01, rounds)))
    runs = []
    for scale in (1.0, 1.0, factor):
        noise = random.lognormal(0, 0.02, rounds) * np.where(random.random(rounds) < 0.05, 1.3, 1.0)
        runs.append(list(scale * drift * noise))
    return runs[0], runs[1], runs[2]


def _verdicts(factor: float, comparisons: int, rounds: int, seed: int) -> list[inference.Verdict]:
    random = np.random.default_rng(seed)
    found = []
    for trial in range(comparisons):
        baseline, again, rival = _simulated(random, rounds, factor)
        floor = inference.noise_floor(inference.paired_ratio(again, baseline, trial))
        ratio, second = (inference.paired_ratio(rival, run, trial) for run in (baseline, again))
        found.append(inference.verdict(ratio, ratio.p if ratio else 1.0, floor, "lower", partial(lambda s: s, second)))
    return found


def test_two_hundred_simulated_comparisons_of_equals_claim_a_difference_in_at_most_five_per_cent() -> None:
    verdicts = _verdicts(1.0, 200, 15, seed=11)
    claims = sum(v in ("better", "worse") for v in verdicts)
    assert claims <= 10


def test_a_rival_that_is_five_per_cent_slower_is_found_slower() -> None:
    verdicts = _verdicts(1.05, 100, 30, seed=12)
    assert verdicts.count("worse") >= 90
    assert verdicts.count("better") == 0


def test_summary_is_the_median_not_the_best_run() -> None:
    found = inference.summarise([1.0, 5.0, 5.0, 5.0, 9.0])
    assert (found.median, found.q1, found.q3, found.n) == (5.0, 5.0, 5.0, 5)
    assert found.spread == 0
