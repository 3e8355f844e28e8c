"""The bounds that a look prints hold as often as they say."""

import math
import random

from freestone_lab.heap import estimate

MEAN = 512 * 1024


def drawn(rng: random.Random, blocks: int, size: int) -> tuple[float, float]:
    """What a profile says of so many blocks of a size: blocks and bytes, each sample weighted."""
    chance = -math.expm1(-size / MEAN)
    taken = sum(rng.random() < chance for _ in range(blocks))
    return taken / chance, taken / chance * size


def coverage(stacks: list[tuple[int, int]], looks: int) -> float:
    rng = random.Random(5)
    truth = sum(blocks * size for blocks, size in stacks)
    good = 0
    for _ in range(looks):
        found = estimate.of_sums([drawn(rng, *stack) for stack in stacks], MEAN)
        good += found.low <= truth <= found.high
    return good / looks


def test_bounds_hold_in_95_of_100_looks() -> None:
    for stacks in (
        [(2000, 4096)],  # about 16 samples
        [(20_000, 4096)],
        [(2000, 1000), (300, 40_000)],
        [(4000, 5000), (10, 1 << 20), (2000, 16)],
        [(400, 4096)],  # about 3
    ):
        assert coverage(stacks, 600) >= 0.93, stacks


def test_the_number_of_samples_is_counted() -> None:
    rng = random.Random(7)
    chance = -math.expm1(-4096 / MEAN)
    blocks, size = drawn(rng, 5000, 4096)
    assert estimate.of_sums([(blocks, size)], MEAN).samples == round(blocks * chance)


def test_without_a_sample_there_is_an_upper_bound() -> None:
    found = estimate.of_sums([], MEAN)
    assert (found.samples, found.low) == (0, 0.0) and found.high == -MEAN * math.log(0.05)
