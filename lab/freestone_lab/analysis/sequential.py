"""Ratios with intervals that hold at every moment: look after each round, and stop when they say enough.

The values are the logarithms of paired ratios, one per round; the ratio is that of the middle pair. Two intervals share
the error rate. Each inverts evidence that is a martingale of mean 1 under its mean or median, so the chance that it
ever reaches 1/a is at most a, over all rounds together (Ville).

- The Bayes factor of a t statistic, with a normal prior of variance g (in units of the noise) for the effect and the
  right-Haar prior for the noise. It averages three priors: for effects of about the noise, of three times the noise
  (time), and of thirty times (memory).
- From `least_ranked` rounds on also ranks: half of the pairs lie above the median, whatever the noise, so a slow run in
  ten costs little. The evidence is a coin's throws with a uniform prior for the coin. The intervals' overlap counts.

Sources: Lai (1976); Gönen et al. (2005); Wang and Ramdas (2024), "Anytime-valid t-tests and confidence sequences";
Ville (1939) for the coin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median, stdev

ERROR_RATE = 0.05
PRIORS = (1.0, 10.0, 1000.0)
# Runs that happen to agree to the page or the microsecond prove no noise below this.
LEAST_NOISE = 0.002
LEAST_ROUNDS = 5  # with fewer there is no interval
MOST_ROUNDS = 20_000
FARTHEST = 100.0  # an interval whose ends are so many times apart says nothing
NORMAL_SPREAD = 1.4826  # a normal's standard deviation, in median distances from its median


@dataclass(frozen=True)
class Estimate:
    """A ratio, and the interval that holds at any time: from 0 to infinity while nothing is known."""

    ratio: float
    low: float
    high: float
    pairs: int
    noise: float  # the spread of the logarithms that a slow run in ten does not change

    @property
    def below(self) -> bool:
        return self.high < 1

    @property
    def above(self) -> bool:
        return self.low > 1

    @property
    def is_known(self) -> bool:
        """Whether the interval says anything."""
        return self.low > 0

    @property
    def half_width(self) -> float:
        """Half of the interval's width, relative; infinite while nothing is known."""
        return (self.high - self.low) / 2 / self.ratio

    @property
    def inverse(self) -> Estimate:
        """The same evidence about the other way round."""
        low, high = (1 / self.high, 1 / self.low) if self.is_known else (0.0, math.inf)
        return Estimate(1 / self.ratio, low, high, self.pairs, self.noise)


def _log_evidence(t_squared: float, n: int) -> float:
    """The logarithm of the averaged Bayes factor of n values whose t statistic has this square."""
    logs = []
    for g in PRIORS:
        spread = 1 + n * g
        share = t_squared / (n - 1)
        logs.append(n / 2 * (math.log1p(share) - math.log1p(share / spread)) - math.log(spread) / 2)
    top = max(logs)
    return top + math.log(sum(math.exp(x - top) for x in logs) / len(logs))


def least_rounds(alpha: float) -> int:
    """The fewest rounds after which a difference of any size can be shown at this error rate."""
    n = LEAST_ROUNDS
    while math.isinf(_critical_t(n, alpha / 2)):
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


@lru_cache(maxsize=65536)
def _rank(n: int, alpha: float) -> int:
    """The fewest of n values that may lie below the median without being evidence at `alpha`."""
    wanted, k = -math.log(alpha), 0
    while n * math.log(2) - math.log(n + 1) - _log_choices(n, k) >= wanted:
        k += 1
    return k


def _log_choices(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


@lru_cache(maxsize=1024)
def least_ranked(alpha: float) -> int:
    """From how many rounds on the interval is one of ranks: when it ends inside the outermost values."""
    n = LEAST_ROUNDS
    while _rank(n, alpha / 2) < 2:
        n += 1
    return n


def half_width(noise: float, n: int, alpha: float) -> float:
    """How far the interval of n values is expected to reach to each side; of ranks, it reaches about as far."""
    return _critical_t(n, alpha / 2) * noise / math.sqrt(n)


def noise_behind(found: Estimate, alpha: float) -> float:
    """The noise by which the interval is as wide as it is, if that is more: of few values, one odd one widens it."""
    reach = math.log(found.high / found.low if found.is_known else FARTHEST) / 2
    return max(found.noise, reach * math.sqrt(found.pairs) / _critical_t(found.pairs, alpha / 2))


def estimate(logs: Sequence[float], alpha: float) -> Estimate:
    """The ratio behind `logs` and its interval at this error rate."""
    return _made(logs, _ends(sorted(logs), alpha) if len(logs) >= LEAST_ROUNDS else (-math.inf, math.inf))


def of_fixed_rounds(logs: Sequence[float], alpha: float) -> Estimate:
    """The same where the number of rounds was fixed before anybody looked: the geometric mean, with Student's t."""
    n = len(logs)
    if n < LEAST_ROUNDS:
        return _made(logs, (-math.inf, math.inf))
    mean = math.fsum(logs) / n
    reach = _student_t(n - 1, alpha) * max(LEAST_NOISE, stdev(logs, mean)) / math.sqrt(n)
    return _made(logs, (mean - reach, mean + reach), mean)


@lru_cache(maxsize=1024)
def _student_t(freedom: int, alpha: float) -> float:
    from scipy.special import stdtrit  # takes a while to load

    return float(stdtrit(freedom, 1 - alpha / 2))


def _made(logs: Sequence[float], ends: tuple[float, float], mean: float | None = None) -> Estimate:
    if not logs:
        return Estimate(1.0, 0.0, math.inf, 0, LEAST_NOISE)
    middle = median(logs)
    at = middle if mean is None else mean
    noise = max(LEAST_NOISE, NORMAL_SPREAD * median(abs(x - middle) for x in logs))
    if ends[1] - ends[0] > math.log(FARTHEST):
        return Estimate(math.exp(at), 0.0, math.inf, len(logs), noise)
    return Estimate(math.exp(at), math.exp(ends[0]), math.exp(ends[1]), len(logs), noise)


def _ends(ordered: Sequence[float], alpha: float) -> tuple[float, float]:
    n = len(ordered)
    mean = math.fsum(ordered) / n
    reach = half_width(max(LEAST_NOISE, stdev(ordered, mean)), n, alpha)
    if n < least_ranked(alpha):
        return mean - reach, mean + reach
    rank = _rank(n, alpha / 2)
    low, high = ordered[rank - 1], ordered[n - rank]
    both = max(low, mean - reach), min(high, mean + reach)
    return both if both[0] <= median(ordered) <= both[1] else (low, high)


def next_look(rounds: int) -> int:
    """When to look again after so many rounds: often enough, without spending on looks what rounds could have."""
    return rounds + max(1, rounds // 12)


def rounds_until(noise: float, reach: float, alpha: float) -> int | None:
    """After how many rounds the interval reaches no further than `reach`; None when it would take MOST_ROUNDS."""
    if reach <= 0 or half_width(noise, MOST_ROUNDS, alpha) > reach:
        return None
    low, high = LEAST_ROUNDS - 1, MOST_ROUNDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if half_width(noise, middle, alpha) <= reach else (middle, high)
    return high
