"""Addresses that a small program takes, what a tool that follows every mapping pays for them, and how many mappings a
large heap is, with the guards of a kernel that has no guard regions too.

The first two are compared with the C library's malloc.
"""

import re
import resource
import shutil
import subprocess
import unittest
from pathlib import Path

from support import harness


def address_space_kib(library: Path | None) -> int:
    done = harness.run(["/bin/cat", "/proc/self/status"], library=library)
    assert done.status == 0, done
    return next(int(line.split()[1]) for line in done.out.splitlines() if line.startswith("VmSize:"))


def cost_of(command: list[str], library: Path | None) -> tuple[float, int]:
    """CPU seconds of a command, and the largest resident size in KiB of this script's children so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=harness.environment([library] if library else []), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss


class AddressSpace(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        harness.require_freestone("a promise of libfreestone")

    def test_a_small_program_takes_few_mebibytes_more_than_on_the_c_library(self) -> None:
        base, ours = address_space_kib(None), address_space_kib(harness.LIBRARY)
        print(f"VmSize of cat: {base} KiB, ours {ours} KiB")
        # Places for freed blocks take 64 KiB a class, which few of them touch; tables of the second partition the rest.
        self.assertLessEqual(ours - base, (8 if harness.IS_HARDENED else 6) * 1024)

    def test_valgrind_starts_a_program_in_ordinary_time_and_memory(self) -> None:
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed")
        for tool in ("none", "memcheck"):
            command = ["valgrind", "-q", f"--tool={tool}", "/bin/cat", "/dev/null"]
            base_seconds, base_kib = cost_of(command, None)
            seconds, kib = cost_of(command, harness.LIBRARY)
            print(f"{tool}: {base_seconds:.2f} s, {base_kib} KiB; ours {seconds:.2f} s, {kib} KiB")
            self.assertLessEqual(kib, 2 * base_kib)
            self.assertLessEqual(seconds, 4 * base_seconds + 1)


class LargeHeap(unittest.TestCase):
    """100 GiB of addresses; of the memory, a page a block is touched at most."""

    @classmethod
    def setUpClass(cls) -> None:
        harness.require_freestone("a promise of libfreestone")

    def counts(self, mebibytes: int) -> list[int]:
        command = [harness.PROBES / "mappings_probe", str(mebibytes), "1", "100"]
        done = harness.run(command, extra={"FREESTONE_CONF": "thp:off"})
        if done.status == 3:
            self.skipTest("the kernel does not give 100 GiB of addresses")
        self.assertEqual(done.status, 0, done)
        print(f"mappings with blocks of {mebibytes} MiB: {done.out.strip()}")
        return [int(word) for word in done.out.split()]

    def test_of_runs_is_as_many_mappings_as_a_small_one(self) -> None:
        for mebibytes in (2, 24):
            start, small, large, half, none = self.counts(mebibytes)
            self.assertLessEqual(small, start + 8)
            self.assertLessEqual(max(large, half, none), small + 4)

    def test_of_own_mappings_has_one_for_each_at_most(self) -> None:
        start, _, large, half, none = self.counts(128)
        # Neighbours are one; in the hardened build there are none.
        self.assertLessEqual(large, start + (800 if harness.IS_HARDENED else 0) + 12)
        self.assertLessEqual(half, start + 400 + 12)
        self.assertLessEqual(none, start + 12)


class GuardsOfAnOlderKernel(unittest.TestCase):
    """Before Linux 6.13 each guard is a mapping: they have an eighth of what a process may have (PROTECT-1)."""

    @classmethod
    def setUpClass(cls) -> None:
        if not harness.IS_HARDENED:
            raise unittest.SkipTest("a promise of the hardened build")

    def test_leave_the_program_its_mappings(self) -> None:
        allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
        budget = allowed // 8
        if allowed > 1 << 18:
            self.skipTest("this kernel allows so many mappings that filling them takes minutes")
        command = [*harness.older_kernel(), harness.PROBES / "guards_probe", str(budget), "20000"]
        done = harness.run([*command, str(allowed * 13 // 16)], extra={"FREESTONE_CONF": "stats_print:true"})
        self.assertEqual(done.status, 0, done)
        start, filled, moved, neighbours, got = done.out.split()
        print(f"mappings: {done.out.strip()} of {allowed}")
        self.assertEqual(got, "got")
        self.assertGreater(int(filled), budget // 2)
        self.assertLessEqual(max(int(filled), int(moved) - int(neighbours)), int(start) + budget)
        lines = re.findall(r"^ +(\d+)  (mappings that .*)$", done.err, re.MULTILINE)
        told = {text: int(count) for count, text in lines}
        self.assertEqual(told["mappings that guards may make"], budget)
        # Opened in parts they may exceed it.
        self.assertLessEqual(told["mappings that guards make"], budget + budget // 16)
        self.assertGreater(told["mappings that guards make"], budget // 2)


if __name__ == "__main__":
    harness.main()
