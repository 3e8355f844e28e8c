"""Bounds that hold at every moment: you may look at a measurement after each round and stop when it says enough.

The values are the logarithms of paired ratios, one per round. Their evidence against a mean m is the Bayes factor of a
t statistic, with a normal prior of variance g (in units of the noise) for the effect and the right-Haar prior for the
noise itself. Under the mean m it is a martingale of mean 1, whatever the noise. So the chance that it ever reaches 1/a
is at most a, over all rounds together (Ville). The interval is the set of means that it does not reject at 1/a. It
averages two priors: one for effects of about ten times the noise (time), one for thirty times (memory).
Sources: Lai (1976); Gönen et al. (2005); Wang and Ramdas (2024), "Anytime-valid t-tests and confidence sequences".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

ERROR_RATE = 0.05
PRIORS = (100.0, 1000.0)
# Runs that happen to agree to the page or the microsecond prove no noise below this.
LEAST_NOISE = 0.002
LEAST_ROUNDS = 3
MOST_ROUNDS = 20_000


@dataclass(frozen=True)
class Bounds:
    """A ratio, and the interval that holds at any time. `high` is infinite while the rounds are too few."""

    ratio: float
    low: float
    high: float
    rounds: int
    noise: float  # the standard deviation of the logarithms

    @property
    def below(self) -> bool:
        return self.high < 1

    @property
    def above(self) -> bool:
        return self.low > 1

    @property
    def is_known(self) -> bool:
        """Whether the interval says anything: its ends are less than a hundredfold apart."""
        return self.low > 0 and self.high < 100 * self.low

    @property
    def inverse(self) -> Bounds:
        """The same evidence about the other way round."""
        high = 1 / self.low if self.low > 0 else math.inf
        return Bounds(1 / self.ratio, 0.0 if math.isinf(self.high) else 1 / self.high, high, self.rounds, self.noise)


def _log_evidence(t_squared: float, n: int) -> float:
    """The logarithm of the averaged Bayes factor of n values whose t statistic has this square."""
    logs = []
    for g in PRIORS:
        spread = 1 + n * g
        share = t_squared / (n - 1)
        logs.append(n / 2 * (math.log1p(share) - math.log1p(share / spread)) - math.log(spread) / 2)
    top = max(logs)
    return top + math.log(sum(math.exp(x - top) for x in logs) / len(logs))


def _moments(logs: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(logs) / len(logs)
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / max(1, len(logs) - 1))
    return mean, max(spread, LEAST_NOISE)


def p_value(logs: Sequence[float]) -> float:
    """Evidence against "no difference": errs at most at its rate, however often somebody looked before."""
    if len(logs) < 2:
        return 1.0
    mean, noise = _moments(logs)
    return min(1.0, math.exp(-_log_evidence(mean * mean * len(logs) / noise**2, len(logs))))


def least_rounds(alpha: float) -> int:
    """The fewest rounds after which a difference of any size can be shown at this error rate."""
    n = 2
    while _log_evidence(1e12, n) < -math.log(alpha):
        n += 1
    return n


@lru_cache(maxsize=65536)
def _critical_t(n: int, alpha: float) -> float:
    """The least |t| of n values that is evidence at `alpha`; infinite while n is too small for any evidence."""
    wanted = -math.log(alpha)
    if n < 2 or _log_evidence(1e12, n) < wanted:
        return math.inf
    low, high = 0.0, 1e6  # the evidence rises with |t|
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _log_evidence(middle * middle, n) < wanted else (low, middle)
    return high


def half_width(noise: float, n: int, alpha: float) -> float:
    """How far the interval reaches to each side of the mean."""
    return _critical_t(n, alpha) * noise / math.sqrt(n)


def bounds(logs: Sequence[float], alpha: float) -> Bounds:
    """The interval of the mean of `logs`, as ratios. With fewer than two values it is everything."""
    if len(logs) < 2:
        return Bounds(math.exp(logs[0]) if logs else 1.0, 0.0, math.inf, len(logs), LEAST_NOISE)
    mean, noise = _moments(logs)
    reach = half_width(noise, len(logs), alpha)
    if math.isinf(reach) or reach > 50:
        return Bounds(math.exp(mean), 0.0, math.inf, len(logs), noise)
    return Bounds(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), len(logs), noise)


def rounds_until(noise: float, reach: float, alpha: float) -> int | None:
    """After how many rounds the interval reaches no further than `reach`; None when it would take MOST_ROUNDS."""
    if reach <= 0 or half_width(noise, MOST_ROUNDS, alpha) > reach:
        return None
    low, high = 1, MOST_ROUNDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(noise, middle, alpha) <= reach else (middle, high)
    return high
