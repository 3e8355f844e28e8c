"""mallinfo, mallinfo2, malloc_info, malloc_stats and mallopt tell the truth about a known amount of live memory."""

from __future__ import annotations

import json
import re
import tempfile
import unittest
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from support import harness

SLACK = 512 * 1024  # memory of the C library itself, and blocks that lie in a thread's cache


class Statistics(unittest.TestCase):
    figures: dict[str, Any]
    text: str
    document: str

    @classmethod
    def setUpClass(cls) -> None:
        if harness.LIBRARY is not None and not harness.IS_FREESTONE:
            raise unittest.SkipTest("other allocators let glibc answer for an empty heap")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "info.xml"
            done = harness.run([harness.PROBES / "mallinfo_probe", path])
            assert done.status == 0, done
            cls.figures = json.loads(done.out)
            cls.text = done.err
            cls.document = path.read_text()

    def assert_live(self, reported: int) -> None:
        low = self.figures["requested"]
        high = self.figures["usable"] * 1.05 + SLACK
        self.assertGreaterEqual(reported, low)
        self.assertLessEqual(reported, high)

    def in_use(self, when: str) -> int:
        return int(self.figures[when]["uordblks"]) + int(self.figures[when]["hblkhd"])

    def test_mallinfo2_counts_the_live_bytes_as_mallinfo_and_forgets_freed_ones(self) -> None:
        self.assert_live(self.in_use("held") - self.in_use("before"))
        self.assertLessEqual(self.in_use("freed") - self.in_use("before"), SLACK)
        self.assertAlmostEqual(self.figures["mallinfo_uordblks"], self.figures["held"]["uordblks"], delta=SLACK)
        for when in ("before", "held", "freed"):
            row = self.figures[when]
            self.assertEqual(row["arena"], row["uordblks"] + row["fordblks"], when)

    def test_malloc_info_is_well_formed_and_counts_the_live_bytes(self) -> None:
        self.assertEqual(self.figures["malloc_info"], 0)
        root = ElementTree.fromstring(self.document)
        self.assertEqual(root.tag, "malloc")
        self.assertIn("version", root.attrib)
        size = {(n.tag, n.attrib["type"]): int(n.attrib["size"]) for n in root if n.tag in ("total", "system")}
        free = size["total", "fast"] + size["total", "rest"]
        used = size["system", "current"] + size["total", "mmap"] - free
        self.assert_live(used - self.in_use("before"))
        self.assertLessEqual(size["system", "current"], size["system", "max"])
        listed = sum(int(node.attrib["total"]) for node in root.iter("size"))
        self.assertLessEqual(listed, free, "sizes are those of free blocks")

    def test_malloc_stats_writes_the_live_bytes_to_standard_error(self) -> None:
        low, high = self.figures["requested"], self.figures["usable"] * 1.05 + SLACK
        numbers = [int(number) for number in re.findall(r"\d+", self.text)]
        self.assertTrue([n for n in numbers if low <= n <= high], f"no number in [{low}, {high}] in:\n{self.text}")

    def test_malloc_stats_is_no_cancellation_point_and_leaves_cancellation_on(self) -> None:
        self.assertEqual(self.figures["stats_returned"], 1)
        self.assertEqual(self.figures["cancelled_later"], 1)

    def test_malloc_stats_ends_with_the_lines_that_scripts_know_from_glibc(self) -> None:
        names = ["system bytes     ", "in use bytes     ", "max mmap regions ", "max mmap bytes   "]
        lines = self.text.splitlines()[-5:]
        self.assertEqual(lines[0], "Total (incl. mmap):")
        self.assertEqual([line.partition("=")[0] for line in lines[1:]], names)
        self.assertEqual({len(line) for line in lines[1:]}, {len("system bytes     = 1234567890")})
        system, in_use, regions, mapped = (int(line.partition("=")[2]) for line in lines[1:])
        self.assert_live(in_use)
        self.assertGreaterEqual(system, in_use)
        self.assertGreaterEqual(regions, 1, "of the block that the program freed long before")
        self.assertGreaterEqual(mapped, 64 << 20)

    def test_calls_say_whether_they_did_what_was_asked(self) -> None:
        self.assertNotEqual(self.figures["malloc_info_bad_option"], 0)
        self.assertEqual(self.figures["mallopt_trim"], 1)
        self.assertIn(self.figures["trim"], (0, 1))
        harness.require_freestone("glibc's mallopt accepts any parameter")
        self.assertEqual(self.figures["mallopt_unknown"], 0)


if __name__ == "__main__":
    harness.main()
