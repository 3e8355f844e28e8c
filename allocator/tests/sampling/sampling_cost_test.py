"""Sampling at the default mean stays cheap, by instructions: the times of sampling_cost.py follow them, on a quiet machine."""

from __future__ import annotations

import shutil
import unittest

from sampling import sampling_cost
from support import harness

MOST = 1.017  # the promise is 2 % of time, which lies half a percent above that of instructions


class SamplingCost(unittest.TestCase):
    def check(self, program: str) -> None:
        harness.require_freestone("a promise of libfreestone")
        assert harness.LIBRARY is not None
        if harness.IS_HARDENED:
            self.skipTest("promised of the fast build")
        build = harness.LIBRARY.parent
        command = sampling_cost.commands(build, short=True)[program]
        for needed in ("valgrind", command[0]):
            if shutil.which(needed) is None:
                self.skipTest(f"there is no {needed}")
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
