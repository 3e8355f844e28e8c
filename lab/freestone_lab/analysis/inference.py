"""The statistics of every claim: paired log-ratios, BCa intervals of their median, two tests with Holm, four verdicts.

All functions are pure; random ones take a seed. Ratios are other / baseline, so below 1 means less than the baseline.
Method: Efron (1987) for BCa; Holm (1979); Cliff (1993) for the effect size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from freestone_lab.analysis import sequential
from freestone_lab.core.result import Better

RESAMPLES = 10_000
CONFIDENCE = 0.95
LEAST_MARGIN = 0.01  # differences below one per cent are never claimed
LARGEST_SAME = 0.05  # with a noise floor above this, "same" would say nothing
ALPHA = 0.05
LEAST_PAIRS_SAME = 6  # fewer may agree by chance
NORMAL = NormalDist()

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "same", "inconclusive"]


@dataclass(frozen=True)
class Estimate:
    """A ratio to the baseline: the median over the pairs and its 95 % interval. `p` is not corrected."""

    ratio: float
    low: float
    high: float
    pairs: int
    p: float
    delta: float  # Cliff's delta of the two samples: -1 (all below the baseline) .. 1 (all above)

    @property
    def half_width(self) -> float:
        """Half of the interval's width, relative."""
        return (self.high - self.low) / 2 / self.ratio


@dataclass(frozen=True)
class Summary:
    """A sample in short: median and quartiles."""

    median: float
    q1: float
    q3: float
    n: int

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles over the median; 0 when the median is 0."""
        return (self.q3 - self.q1) / 2 / abs(self.median) if self.median else 0.0


def summarise(values: Sequence[float]) -> Summary:
    """Median and quartiles (linear interpolation); `values` must not be empty."""
    q1, median, q3 = np.quantile(np.asarray(values, dtype=float), [0.25, 0.5, 0.75])
    return Summary(float(median), float(q1), float(q3), len(values))


@lru_cache(maxsize=256)
def _median_ranks(n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The ranks of the one or two middle values in RESAMPLES bootstrap resamples of n sorted values, and how often.

    The median of a resample depends only on the ranks drawn, so each n needs one draw. Few ranks differ, so all else
    counts over those.
    """
    drawn = np.sort(np.random.default_rng(seed).integers(0, n, size=(RESAMPLES, n)), axis=1)
    pairs, times = np.unique(drawn[:, [(n - 1) // 2, n // 2]], axis=0, return_counts=True)
    return pairs[:, 0].copy(), pairs[:, 1].copy(), times


def _distinct_medians(ordered: Floats, seed: int) -> tuple[Floats, NDArray[np.intp]]:
    """The different medians of RESAMPLES resamples of sorted values, rising, and how many resamples had each."""
    low, high, times = _median_ranks(len(ordered), seed)
    medians = (ordered[low] + ordered[high]) / 2
    order = np.argsort(medians, kind="stable")
    return medians[order], times[order]


def bootstrap_medians(values: Floats, seed: int) -> Floats:
    """The medians of RESAMPLES resamples of `values`, sorted."""
    medians, times = _distinct_medians(np.sort(values), seed)
    return np.repeat(medians, times)


def _middle(ordered: Floats) -> float:
    """The median of values that are already sorted."""
    n = len(ordered)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _jackknife_medians(ordered: Floats) -> Floats:
    """For each of the sorted values, the median of the others: dropping one moves the middle up or leaves it."""
    n = len(ordered)
    low, high = (n - 2) // 2, (n - 1) // 2  # the middle ranks of n - 1 values
    at = np.arange(n)
    medians: Floats = (ordered[low + (at <= low)] + ordered[high + (at <= high)]) / 2
    return medians


def median_interval(values: Floats, seed: int = 0, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The BCa bootstrap interval of the median. One value, or equal values, give an interval of no width."""
    ordered = np.sort(np.asarray(values, dtype=float))
    if ordered[0] == ordered[-1]:
        return float(ordered[0]), float(ordered[0])
    observed = _middle(ordered)
    medians, times = _distinct_medians(ordered, seed)
    below = float(times[medians < observed].sum() + times[medians == observed].sum() / 2) / RESAMPLES
    tail = (1 - confidence) / 2
    probabilities = np.array([tail, 1 - tail])
    if 0 < below < 1:
        bias = NORMAL.inv_cdf(below)
        gaps = np.mean(j := _jackknife_medians(ordered)) - j
        spread = float(np.sum(gaps**2))
        acceleration = float(np.sum(gaps**3)) / (6 * spread**1.5) if spread > 0 else 0.0
        shifted = [bias + NORMAL.inv_cdf(p) for p in (tail, 1 - tail)]
        probabilities = np.array([NORMAL.cdf(bias + s / (1 - acceleration * s)) for s in shifted])
    ends = np.cumsum(times)
    places = probabilities * (RESAMPLES - 1)  # quantiles by linear interpolation, over the resamples one by one
    left, right = (
        medians[np.searchsorted(ends, np.floor(places) + step, side="right").clip(max=len(ends) - 1)] for step in (0, 1)
    )
    low, high = left + (right - left) * (places - np.floor(places))
    return float(low), float(high)


MOST_EXACT = 60  # pairs; beyond, the normal approximation is as good


def signed_rank_p(differences: Floats) -> float:
    """Two-sided Wilcoxon signed-rank p; 1 if all differences are zero. Exact even with ties, by counting subsets.

    scipy enumerates all 2^n signs when there are ties: seconds for each pair of samples.
    """
    kept = differences[differences != 0]
    if len(kept) == 0:
        return 1.0
    if len(kept) > MOST_EXACT:
        from scipy import stats  # takes a second to load, which most commands need not wait for

        return float(stats.wilcoxon(kept).pvalue)
    doubled = _doubled_ranks(np.abs(kept))
    positive = int(doubled[kept > 0].sum())
    tail = min(positive, int(doubled.sum()) - positive)
    return min(1.0, 2 * float(_sign_choices(tuple(sorted(doubled.tolist())))[: tail + 1].sum()) / 2.0 ** len(kept))


def _doubled_ranks(values: Floats) -> NDArray[np.intp]:
    """Twice the ranks from 1 on; equal values share the mean of theirs, which doubled is whole."""
    ordered = np.sort(values)
    return np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right") + 1


@lru_cache(maxsize=256)
def _sign_choices(doubled: tuple[int, ...]) -> Floats:
    """At index s: how many choices of signs make the positive ranks add up to s / 2."""
    ways = np.zeros(sum(doubled) + 1)
    ways[0] = 1
    for rank in doubled:
        ways[rank:] = ways[rank:] + ways[:-rank]
    return ways


def paired_p(differences: Floats) -> float:
    """Two-sided p of paired differences: the better of two tests, paid for twice.

    The signed-rank test needs many pairs and sees small shifts; that of `sequential` needs three and sees large ones.
    """
    return min(1.0, 2 * min(signed_rank_p(differences), sequential.p_value(differences.tolist())))


def cliffs_delta(other: Floats, baseline: Floats) -> float:
    """P(other > baseline) - P(other < baseline) over all cross pairs."""
    signs = np.sign(other[:, None] - baseline[None, :])
    return float(np.mean(signs))


def paired_ratio(other: Sequence[float], baseline: Sequence[float], seed: int = 0) -> Estimate | None:
    """The ratio of paired positive samples (one pair per round). None when fewer than two pairs or a value <= 0."""
    a, b = np.asarray(other, dtype=float), np.asarray(baseline, dtype=float)
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values are not pairs")
    if len(a) < 2 or np.any(a <= 0) or np.any(b <= 0):
        return None
    logs = np.log(a) - np.log(b)
    low, high = median_interval(logs, seed)
    return Estimate(
        ratio=math.exp(float(np.median(logs))),
        low=math.exp(low),
        high=math.exp(high),
        pairs=len(a),
        p=paired_p(logs),
        delta=cliffs_delta(a, b),
    )


def unpaired_ratio(other: Sequence[float], baseline: Sequence[float], seed: int = 0) -> Estimate | None:
    """The ratio of the medians of two independent positive samples; Mann-Whitney p. None as in paired_ratio."""
    a, b = np.asarray(other, dtype=float), np.asarray(baseline, dtype=float)
    if len(a) < 2 or len(b) < 2 or np.any(a <= 0) or np.any(b <= 0):
        return None
    from scipy import stats

    log_a, log_b = np.log(a), np.log(b)
    random = np.random.default_rng(seed)
    gaps = random.permutation(bootstrap_medians(log_a, seed)) - random.permutation(bootstrap_medians(log_b, seed + 1))
    low, high = np.quantile(gaps, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(
        ratio=math.exp(float(np.median(log_a) - np.median(log_b))),
        low=math.exp(float(low)),
        high=math.exp(float(high)),
        pairs=min(len(a), len(b)),
        p=float(stats.mannwhitneyu(a, b).pvalue),
        delta=cliffs_delta(a, b),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction; the order of the input is kept."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


def noise_floor(again: Estimate | None) -> float:
    """The relative difference that the A/A control cannot tell from nothing: the far end of its interval."""
    if again is None:
        return math.inf
    return max(abs(math.log(again.low)), abs(math.log(again.high)))


def margin(floor: float) -> float:
    """The smallest relative difference worth a claim."""
    return max(LEAST_MARGIN, floor)


def verdict(
    estimate: Estimate | None, corrected_p: float, floor: float, better: Better,
    to_control: Callable[[], Estimate | None] = lambda: None,
) -> Verdict:  # fmt: skip
    """What a ratio lets us say. A difference needs to exceed the margin and to be significant after the correction.

    `to_control` is the ratio to the baseline's second run, if there is one. A difference that only one of two runs of
    the same thing shows is that run's noise, so a claim must hold against both.
    """
    if estimate is None or better == "neither" or math.isinf(floor):
        return "inconclusive"
    bound = math.log1p(margin(floor))
    low, ratio, high = math.log(estimate.low), math.log(estimate.ratio), math.log(estimate.high)
    if estimate.pairs >= LEAST_PAIRS_SAME and margin(floor) <= LARGEST_SAME and -bound <= low and high <= bound:
        return "same"
    if corrected_p < ALPHA and abs(ratio) > bound and side(estimate) != 0:
        second = to_control()
        if second is None or side(second) == side(estimate):
            return "better" if (ratio < 0) == (better == "lower") else "worse"
    return "inconclusive"


def side(estimate: Estimate) -> int:
    """-1 when the whole interval is below 1, 1 when it is above, 0 when it includes 1."""
    return -1 if estimate.high < 1 else 1 if estimate.low > 1 else 0
