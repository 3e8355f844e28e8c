"""What merely loading the library costs an empty program, compared with the C library's malloc."""

from __future__ import annotations

import statistics
import unittest
from pathlib import Path

from support import harness

RUNS = 15


def medians(library: Path | None) -> tuple[float, float, float]:
    """Resident KiB, private dirty KiB and page faults of the empty program."""
    rows = []
    for _ in range(RUNS):
        done = harness.run([harness.PROBES / "startup_probe"], library=library)
        assert done.status == 0, done
        rows.append([float(word) for word in done.out.split()])
    first, second, third = (statistics.median(column) for column in zip(*rows, strict=True))
    return first, second, third


class StartUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        harness.require_freestone("a promise of libfreestone")
        cls.base = medians(None)
        cls.ours = medians(harness.LIBRARY)
        print(f"resident, private dirty KiB, faults: C library {cls.base}, {harness.LIBRARY} {cls.ours}")

    base: tuple[float, float, float]
    ours: tuple[float, float, float]

    # The aim is 200 KiB and is missed (docs/BENCHMARKS.md): most of the difference is file pages of the library's text and of the
    # C library's around what it calls. This bound keeps it from growing.
    def test_resident_memory_is_within_400_kib_of_the_c_librarys(self) -> None:
        self.assertLessEqual(self.ours[0] - self.base[0], 400)

    def test_dirty_memory_is_within_100_kib_of_the_c_librarys(self) -> None:
        self.assertLessEqual(self.ours[1] - self.base[1], 100)

    def test_page_faults_are_within_50_of_the_c_librarys(self) -> None:
        self.assertLessEqual(self.ours[2] - self.base[2], 50)


if __name__ == "__main__":
    harness.main()
