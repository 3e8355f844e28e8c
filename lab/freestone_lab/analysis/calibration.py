"""How often the lab errs, by simulation: whether its intervals hold the truth, whatever the noise looks like.

The intervals come from the functions that every table, card and drawing prints. The noise is that of single runs; both
runs of a pair have it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from freestone_lab.analysis import inference, paired, sequential
from freestone_lab.analysis.sequential import ERROR_RATE, Estimate

SPREAD = 0.02  # of one run
SLOW = 1.5  # a disturbed run takes so many times as long
TRUTH = 0.9
Noise = Callable[[random.Random], float]


def _normal(source: random.Random) -> float:
    return source.gauss(0, SPREAD)


def _lognormal(source: random.Random) -> float:
    """Most runs are a little slow, a few are very slow."""
    return math.log1p(SPREAD * source.lognormvariate(0, 1))


def _slow_in_ten(source: random.Random) -> float:
    return _normal(source) + (math.log(SLOW) if source.random() < 0.1 else 0)


def _two_states(source: random.Random) -> float:
    """The machine has a fast and a slow state."""
    return source.gauss(0, SPREAD / 4) + (2 * SPREAD if source.random() < 0.3 else 0)


# By name: the noise of one run, and how far the whole machine drifts from round to round.
SHAPES: dict[str, tuple[Noise, float]] = {
    "normal": (_normal, 0.0),
    "lognormal": (_lognormal, 0.0),
    "one slow run in ten": (_slow_in_ten, 0.0),
    "two states": (_two_states, 0.0),
    "drift": (_normal, 0.05),
}


def runs(shape: str, truths: Sequence[float], rounds: int, source: random.Random) -> list[list[float]]:
    """For each true cost the simulated costs of its runs, round by round beside the others'."""
    noise, drift = SHAPES[shape]
    found: list[list[float]] = [[] for _ in truths]
    machine = 0.0
    for _ in range(rounds):
        machine += source.gauss(0, drift)
        for own, truth in zip(found, truths, strict=True):
            own.append(truth * math.exp(machine + noise(source)))
    return found


@dataclass(frozen=True)
class Coverage:
    """Of `of` simulated sittings, how many intervals were printed, and how many of these held the truth."""

    kind: str
    shape: str
    rounds: int
    of: int
    printed: int
    held: int

    @property
    def rate(self) -> float | None:
        return self.held / self.printed if self.printed else None


def _paired(shape: str, rounds: int, source: random.Random) -> Estimate | None:
    other, baseline = runs(shape, (TRUTH, 1.0), rounds, source)
    return paired.ratio(other, baseline, ERROR_RATE)


def _of_two_sittings(shape: str, rounds: int, source: random.Random) -> Estimate | None:
    """What `diff` prints: two sittings, each with its own drift, compared through their baselines."""
    sittings = [runs(shape, (truth, 1.0), rounds, source) for truth in (1.0, TRUTH)]
    before, after = ([a / b for a, b in zip(*sitting, strict=True)] for sitting in sittings)
    return inference.unpaired_ratio(after, before, ERROR_RATE)


def _over_workloads(shape: str, rounds: int, source: random.Random) -> Estimate | None:
    """What an overview prints: each pair is another workload."""
    other, baseline = runs(shape, (TRUTH, 1.0), rounds, source)
    return sequential.middle([math.log(a / b) for a, b in zip(other, baseline, strict=True)], ERROR_RATE)


KINDS = {"paired": _paired, "of two sittings": _of_two_sittings, "over workloads": _over_workloads}


def coverage(kind: str, shape: str, rounds: int, times: int, seed: int = 1) -> Coverage:
    """Simulates `times` sittings of one shape and length."""
    source = random.Random(f"{seed}/{kind}/{shape}/{rounds}")
    found = [KINDS[kind](shape, rounds, source) for _ in range(times)]
    printed = [e for e in found if e is not None and e.is_known]
    return Coverage(kind, shape, rounds, times, len(printed), sum(e.low <= TRUTH <= e.high for e in printed))


def coverage_at_any_look(shape: str, rounds: int, times: int, seed: int = 1) -> Coverage:
    """The same of sittings that are looked at after every round: the interval holds if it does at each look."""
    source = random.Random(f"{seed}/{shape}")
    held = 0
    for _ in range(times):
        other, baseline = runs(shape, (TRUTH, 1.0), rounds, source)
        looks = [paired.ratio(other[:n], baseline[:n], ERROR_RATE) for n in range(2, rounds + 1)]
        held += all(e.low <= TRUTH <= e.high for e in looks if e is not None)
    return Coverage("at every look", shape, rounds, times, times, held)
