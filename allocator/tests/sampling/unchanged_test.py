"""While the profiler and the guards are on, and afterwards, the hit paths execute what the golden table says."""

import os
import re
import unittest

from golden import fast_path_test as golden
from support import harness

IS_OPTIMISED = os.environ.get("FREESTONE_BUILD_TYPE", "Release") in ("Release", "RelWithDebInfo")


@unittest.skipUnless(IS_OPTIMISED and not harness.IS_HARDENED, "the table is that of the fast build, optimised")
class Unchanged(harness.FreestoneTest):
    def setUp(self) -> None:
        super().setUp()
        self.table = golden.table()

    def slower(self, conf: str, *words: str) -> dict[str, int]:
        """The instructions of the paths that take more than the table says."""
        code = golden.disassembly()
        least: dict[str, int] = {}
        for phase in range(6):  # a call that happens to meet an end of the array takes the slow path
            extra = {"FREESTONE_EXPECT_LIBRARY": str(harness.LIBRARY), "FREESTONE_CONF": conf}
            extra["TRACE_PHASE"] = str(phase)
            done = harness.run([harness.PROBES / "trace_probe", *words], extra=extra)
            if done.status == harness.SKIPPED:
                self.skipTest("single-stepping is not allowed here")
            self.assertEqual(done.status, 0, done)
            for line in done.out.splitlines():
                name, *addresses = line.split()
                counts = golden.Counts()
                for address in addresses:
                    if address != "outside":  # memset's, in calloc
                        counts.add(code[int(address, 16)])
                least[name] = min(least.get(name, 10**9), counts.instructions)
        self.assertEqual(set(least), set(self.table))
        return {name: least[name] for name, row in self.table.items() if least[name] > row.instructions}

    def test_hit_paths_are_those_of_the_golden_table(self) -> None:
        # Above 1 KiB every allocation is counted while samples are wanted, and calloc asks whether it is the one.
        counted = {
            name
            for name in self.table
            if name.startswith("calloc") or max(map(int, re.findall(r"\d+", name)), default=0) > 1024
        }
        self.assertLess(len(counted), len(self.table) / 2)
        slower = self.slower("prof:true,prof_file:/dev/null/none,prof_final:false,guard_sample:8m")
        self.assertEqual({name: n for name, n in slower.items() if name not in counted}, {})

    def test_a_profile_that_has_ended_costs_nothing(self) -> None:
        self.assertEqual(self.slower("prof_sample_bytes:4096", "after a profile"), {})


if __name__ == "__main__":
    harness.main()
