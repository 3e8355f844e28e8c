"""How many samples stand behind a sum of a profile, and between which bounds the true sum lies.

A block of s bytes is sampled with the chance p = 1 - exp(-s / mean) and counts for 1/p blocks. The number of samples
behind a stack follows from its sums: blocks times the chance of their mean size. The sum of many such counts, each with
its weight, is taken as a count again, as many samples of equal weight as have the same relative spread (Fay and Feuer,
Statistics in Medicine 1997); the bounds are those of a Poisson count (Wilson and Hilferty's approximation).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from freestone_lab.flamegraph.model import Profile

Z = 1.96  # of the normal distribution: 95 % lie within


@dataclass(frozen=True)
class Estimate:
    """A sum of bytes: the samples behind it, and the bounds that hold in 95 % of all looks."""

    samples: int
    size: float
    low: float
    high: float


def bounds_of_count(count: float) -> tuple[float, float]:
    """Between which means lies that of a Poisson variable that took this value; 95 %."""
    low = 0.0 if count <= 0 else count * max(0.0, 1 - 1 / (9 * count) - Z / (3 * math.sqrt(count))) ** 3
    above = count + 1
    return low, above * (1 - 1 / (9 * above) + Z / (3 * math.sqrt(above))) ** 3


def of_sums(sums: Iterable[tuple[float, float]], mean: float) -> Estimate:
    """The estimate from pairs of blocks and bytes, one for each stack, with `mean` bytes between two samples."""
    samples = size = square = 0.0
    for blocks, total in sums:
        if blocks <= 0 or total <= 0:
            continue
        chance = -math.expm1(-total / blocks / mean)
        counted = blocks * chance
        samples += counted
        size += total
        square += total * total / counted
    if samples == 0:
        return Estimate(0, 0.0, 0.0, -mean * math.log(0.05))
    alike = size * size / square
    low, high = bounds_of_count(alike)
    return Estimate(round(samples), size, low * size / alike, high * size / alike)


def of_view(profile: Profile, view: str) -> Estimate | None:
    """The estimate of a view such as "inuse" or "alloc". None if the profile lacks it or does not say its mean."""
    names = [name for name, _ in profile.sample_types]
    if profile.period <= 1 or f"{view}_objects" not in names or f"{view}_space" not in names:
        return None
    objects, space = names.index(f"{view}_objects"), names.index(f"{view}_space")
    return of_sums(((values[objects], values[space]) for _, values in profile.samples), profile.period)
