"""What a ratio lets us say: four verdicts, the noise floor of the A/A control, the ratio of two sittings.

All functions are pure. Ratios are other / baseline, so below 1 means less than the baseline. The intervals are those of
`sequential`; those of two sittings are joined by Zou and Donner (2008), "MOVER".
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from freestone_lab.analysis import sequential
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import Better

LEAST_MARGIN = 0.01  # differences below one per cent are never claimed
SAME = 0.03  # an interval within this of "no difference" is one

Verdict = Literal["better", "worse", "same", "inconclusive"]


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


def unpaired_ratio(other: Sequence[float], baseline: Sequence[float], alpha: float) -> Estimate | None:
    """The ratio of two independent samples of positive values. None if one is empty or has a value <= 0."""
    if not other or not baseline or min(*other, *baseline) <= 0:
        return None
    a, b = (sequential.estimate([math.log(x) for x in values], alpha) for values in (other, baseline))
    ratio, pairs, noise = a.ratio / b.ratio, min(a.pairs, b.pairs), math.hypot(a.noise, b.noise)
    if not a.is_known or not b.is_known:
        return Estimate(ratio, 0.0, math.inf, pairs, noise)
    down = math.hypot(math.log(a.ratio / a.low), math.log(b.high / b.ratio))
    up = math.hypot(math.log(a.high / a.ratio), math.log(b.ratio / b.low))
    return Estimate(ratio, ratio * math.exp(-down), ratio * math.exp(up), pairs, noise)


def noise_floor(again: Estimate | None) -> float:
    """The relative difference that the A/A control cannot tell from nothing: the far end of its interval."""
    return max(abs(math.log(again.low)), abs(math.log(again.high))) if again and again.is_known else math.inf


def margin(floor: float) -> float:
    """The smallest relative difference worth a claim."""
    return max(LEAST_MARGIN, floor)


def verdict(
    estimate: Estimate | None, floor: float, better: Better, to_control: Callable[[], Estimate | None] = lambda: None
) -> Verdict:
    """What a ratio lets us say. A difference needs an interval without 1, and to exceed the margin.

    `to_control` is the ratio to the baseline's second run, if there is one. A difference that only one of two runs of
    the same thing shows is that run's noise, so a claim must hold against both.
    """
    if estimate is None or not estimate.is_known or better == "neither" or math.isinf(floor):
        return "inconclusive"
    if side(estimate) != 0 and abs(math.log(estimate.ratio)) > math.log1p(margin(floor)):
        second = to_control()
        if second is None or side(second) == side(estimate):
            return "better" if estimate.below == (better == "lower") else "worse"
    return "same" if is_same(estimate) else "inconclusive"


def is_same(estimate: Estimate) -> bool:
    """Whether the whole interval lies within SAME of "no difference"."""
    return estimate.low >= 1 / (1 + SAME) and estimate.high <= 1 + SAME


def side(estimate: Estimate) -> int:
    """-1 when the whole interval is below 1, 1 when it is above, 0 when it includes 1."""
    return -1 if estimate.below else 1 if estimate.above else 0
