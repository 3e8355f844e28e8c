"""The profiler's estimates against the truth of random workloads, in both ways of following blocks.

FREESTONE_ESTIMATE_WORKLOADS sets their number (100; 1000 is the long mode). Samples fall at random, so a bound is
missed by chance now and then: only what four times as many fresh workloads miss as well is an error.
"""

import json
import math
import os
import statistics
import tempfile
import unittest
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from sampling import profiles
from support import harness

WORKLOADS = int(os.environ.get("FREESTONE_ESTIMATE_WORKLOADS", "100"))
QUANTITIES = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
SAMPLE_BYTES = (65536, 16384, 131072, 8192)  # below 64 KiB every block is tracked


def deviations(seed: int, folder: Path, extra: str = "") -> tuple[dict[str, float], list[float]]:
    """How many standard errors each total is off, and the same for each place of allocation that has enough samples."""
    mean = SAMPLE_BYTES[seed % len(SAMPLE_BYTES)]
    path = folder / f"{seed}.pb"
    done = harness.run(
        [harness.PROBES / "estimates_probe", str(seed), str(mean)],
        extra={"FREESTONE_CONF": f"prof:true,prof_sample_bytes:{mean},prof_file:{path}{extra}"},
    )
    assert done.status == 0, done
    truth = json.loads(done.out)
    profile = profiles.read_pprof(path)
    path.unlink()
    assert profile.period == mean
    starts = sorted((site["address"], i) for i, site in enumerate(truth))
    estimates: list[dict[str, float]] = [defaultdict(float) for _ in truth]
    for sample in profile.samples:
        if not sample.addresses:
            continue
        address = sample.addresses[0]
        below = [(start, i) for start, i in starts if start <= address]
        if not below or address - below[-1][0] > 4096:
            continue  # of the C library
        for quantity in QUANTITIES:
            estimates[below[-1][1]][quantity] += sample.values[quantity]
    totals = {}
    places = []
    for quantity in QUANTITIES:
        sites = [site[quantity] for site in truth]
        if near_normal(sites):
            value, variance = map(sum, zip(*sites, strict=True))
            totals[quantity] = (sum(e[quantity] for e in estimates) - value) / math.sqrt(variance)
        for estimate, (value, variance) in zip(estimates, sites, strict=True):
            if near_normal([(value, variance)]):
                places.append((estimate[quantity] - value) / math.sqrt(variance))
    return totals, places


def near_normal(sites: list[tuple[float, float]]) -> bool:
    """Whether the error of a sum over places (value, variance) is near normal: few samples, or a few that weigh much,
    give a skewed law.

    A sample at a place weighs variance / value, so the third moment of the place's error is variance^2 / value.
    """
    variance = sum(v for _, v in sites)
    third = sum(v * v / value for value, v in sites if value > 0)
    return variance > 0 and third**2 < variance**3 / 60


class Measured:
    """The deviations of so many workloads from `first` on."""

    def __init__(self, first: int, workloads: int, extra: str = "") -> None:
        self.workloads = workloads
        self.totals: dict[str, list[float]] = {q: [] for q in QUANTITIES}
        self.places: list[list[float]] = []  # of each workload
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(first, first + workloads):
                totals, places = deviations(seed, Path(folder), extra)
                for quantity, value in totals.items():
                    self.totals[quantity].append(value)
                self.places.append(places)


class Estimates(unittest.TestCase):
    def setUp(self) -> None:
        harness.require_freestone("a promise of libfreestone")

    def judge(self, check: Callable[[Measured], None], first: int, workloads: int, extra: str = "") -> None:
        try:
            check(Measured(first, workloads, extra))
        except AssertionError as missed:
            print(f"measured again with more: {missed}")
            check(Measured(first + workloads, 4 * workloads, extra))

    def test_estimates_scatter_without_bias_as_the_law_of_sampling_says(self) -> None:
        first = int(os.environ.get("FREESTONE_TEST_SEED", "0"), 0) or int.from_bytes(os.urandom(4), "little")
        print(f"estimates: FREESTONE_TEST_SEED={first}, {WORKLOADS} workloads")

        def check(found: Measured) -> None:
            for quantity, values in found.totals.items():
                self.check_totals(quantity, values, found.workloads)
            self.check_places(found)

        self.judge(check, first, WORKLOADS)

    def check_totals(self, quantity: str, values: list[float], workloads: int) -> None:
        # Of unbiased normal estimates 0.27 % lie outside; 0.6 % allows for the skew of finite samples, and chance adds
        # three deviations.
        outside = sum(abs(v) > 3 for v in values)
        allowed = len(values) * 0.006 + 3 * math.sqrt(len(values) * 0.006)
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        print(f"{quantity}: {outside} of {len(values)} beyond 3 standard errors", end=", ")
        print(f"mean {mean:+.3f}, deviation {deviation:.3f}")
        self.assertGreater(len(values), workloads / 10, quantity)
        self.assertLessEqual(outside, math.ceil(allowed), quantity)
        self.assertLess(abs(mean), 4 / math.sqrt(len(values)), quantity)
        self.assertAlmostEqual(deviation, 1, delta=0.1 + 3 / math.sqrt(2 * len(values)), msg=quantity)

    def check_places(self, found: Measured) -> None:
        """Each place of allocation is estimated without bias."""
        deviations = [value for places in found.places for value in places]
        count, mean = len(deviations), statistics.mean(deviations)
        # The places and quantities of one workload share their samples: the workloads are what is independent.
        error = math.sqrt(sum(sum(v - mean for v in places) ** 2 for places in found.places)) / count
        print(f"{count} places: mean {mean:+.3f} +- {error:.3f}, deviation {statistics.stdev(deviations):.3f}")
        self.assertGreater(count, found.workloads * 4)
        self.assertLess(abs(mean), 4 * error)
        self.assertLess(error, 0.1, "nothing would be found")
        self.assertAlmostEqual(statistics.stdev(deviations), 1, delta=0.15)

    def test_guards_that_share_the_samples_do_not_bias_them(self) -> None:
        def check(found: Measured) -> None:
            values = [value for values in found.totals.values() for value in values]
            self.assertLess(abs(statistics.mean(values)), 4 / math.sqrt(len(values) / 2))
            allowed = len(values) * 0.006 + 4 * math.sqrt(len(values) * 0.006)
            self.assertLessEqual(sum(abs(v) > 3 for v in values), math.ceil(allowed))

        self.judge(check, 1000, 40, ",guard_sample:200000,guard_slots:64")


if __name__ == "__main__":
    harness.main()
