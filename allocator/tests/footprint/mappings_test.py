"""Addresses that a small program takes, and what a tool that follows every mapping pays for them.

Both are compared with the C library's malloc.
"""

from __future__ import annotations

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
        self.assertLessEqual(ours - base, 6 * 1024)

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


if __name__ == "__main__":
    harness.main()
