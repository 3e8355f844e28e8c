"""Sampling at the default mean stays cheap, by instructions: the times of sampling_cost.py follow them."""

from __future__ import annotations

import unittest

from sampling import counted, sampling_cost
from support import harness

MOST = 1.017  # the promise is 2 % of time, which lies half a percent above that of instructions


class SamplingCost(unittest.TestCase):
    def check(self, program: str) -> None:
        build, command = counted.counted_program(self, program)
        off, on = sampling_cost.counts(command, build)
        print(f"{program}: {on / off:.4f} ({off:,} to {on:,} instructions)")
        self.assertGreater(on, off, "nothing was sampled")
        self.assertLess(on / off, MOST)

    def test_lifetimes(self) -> None:
        self.check("lifetimes")

    def test_sqlite3(self) -> None:
        self.check("sqlite3")


if __name__ == "__main__":
    harness.main()
