"""A profile that is attached at the default rate costs at most 2 % of a program's instructions, and nothing once it
has ended."""

from __future__ import annotations

import unittest

from sampling import counted, sampling_cost
from support import harness

MOST = 1.02
NOTHING = 1.002  # starting and ending it


class AttachedCost(unittest.TestCase):
    def check(self, program: str) -> None:
        build, command = counted.counted_program(self, program)
        env = sampling_cost.environment(build, "prof_final:false")
        env["LD_PRELOAD"] += f":{harness.PROBES / 'attached.so'}"
        plain = sampling_cost.instructions(command, env)
        during, ended = (
            sampling_cost.instructions(command, {**env, "FREESTONE_ATTACHED": w}) for w in ("during", "ended")
        )
        print(f"{program}: {during / plain:.4f} while it runs, {ended / plain:.4f} after it ended, of {plain:,}")
        self.assertGreater(during, ended, "nothing was sampled")
        self.assertLessEqual(during / plain, MOST)
        self.assertLessEqual(ended / plain, NOTHING)

    def test_lifetimes(self) -> None:
        self.check("lifetimes")

    def test_sqlite3(self) -> None:
        self.check("sqlite3")


if __name__ == "__main__":
    harness.main()
