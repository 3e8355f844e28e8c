"""The matrix itself: its stand-in refuses what it is told to, and no death or damage passes as a miss."""

from __future__ import annotations

import os
import re
import signal
import sys
import unittest
from pathlib import Path

from matrix import promises
from matrix.axes import Axis, axes, points
from matrix.cells import END, Outcome, Test, judged, run
from support import harness

TROUBLED = Path(os.environ["FREESTONE_TROUBLED"])
NUMBERS = {point.name: point.number for point in points()}
CALLED, REFUSED = 3, 4
# A program that takes 48 MiB, touches them and gives them back, and says how many pieces were refused.
PROGRAM = """
import ctypes
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.malloc.argtypes = [ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
blocks = [c.malloc(3 << 20) for _ in range(16)]
for block in blocks:
    if block: ctypes.memset(block, 1, 3 << 20)
for block in blocks: c.free(block)
print("refused:", sum(block is None for block in blocks))
page = ctypes.c_size_t()
c.mallctl(b"arenas.page", ctypes.byref(page), ctypes.byref(ctypes.c_size_t(8)), None, 0)
print("pages of", page.value)
raise SystemExit(3)
"""


def play(axis: Axis, build: str = "") -> Outcome:
    """The program over a troubled library; it fails on purpose, so that its text can be seen."""
    settings = (("LD_PRELOAD", str(TROUBLED / f"libfreestone{build}.so.1")), ("PYTHONMALLOC", "pymalloc"))
    return run(Test("judge", (sys.executable, "-S", "-c", PROGRAM), settings), axis, harness.HANG_SECONDS)


class StandIn(unittest.TestCase):
    def of(self, outcome: Outcome, call: str) -> int:
        return outcome.called.get(NUMBERS[call], 0)

    def test_without_rules_every_call_goes_on(self) -> None:
        for build in ("", "-hardened"):
            peace = play(Axis("peace"), build=build)
            self.assertIn("refused: 0", peace.failures[0].text)
            self.assertTrue(self.of(peace, "mmap_at") & CALLED)
            self.assertTrue(self.of(peace, "madvise_no_huge") & CALLED)
            self.assertFalse([number for number, seen in peace.called.items() if seen & REFUSED])

    def test_a_rule_refuses_its_calls_and_no_others(self) -> None:
        outcome = play(Axis("a", "madvise_dontneed=EINVAL"))
        self.assertIn("refused: 0", outcome.failures[0].text)
        self.assertEqual([n for n, seen in outcome.called.items() if seen & REFUSED], [NUMBERS["madvise_dontneed"]])

    def test_refused_memory_is_missed_by_the_program(self) -> None:
        for rule in ("mmap=ENOMEM@20", "full=20"):
            with self.subTest(rule):
                self.assertRegex(play(Axis("a", rule)).failures[0].text, "refused: [1-9]")

    def test_a_small_window_is_refused_no_further_than_it_reaches(self) -> None:
        for rule, call in (
            ("mmap_at=EPERM mmap_reserve=ENOMEM>40", "mmap_reserve"),
            ("mmap_at=ELSEWHERE+100-1048576", "mmap_at"),
        ):
            with self.subTest(rule):
                outcome = play(Axis("a", rule))
                self.assertIn("refused: 0", outcome.failures[0].text)  # large blocks have mappings of their own
                self.assertTrue(self.of(outcome, call) & REFUSED)

    def test_larger_pages_are_what_the_library_sees(self) -> None:
        outcome = play(Axis("a", "page=64"))
        self.assertIn("refused: 0", outcome.failures[0].text)
        self.assertIn("pages of 65536", outcome.failures[0].text)
        self.assertTrue(self.of(outcome, "mmap_at") & REFUSED)

    def test_a_killing_rule_kills_once_main_has_begun(self) -> None:
        outcome = play(Axis("a", "mmap=KILL"))
        self.assertEqual([failure.hurt for failure in outcome.failures], [True])
        self.assertIn("ended by SIGSYS", outcome.failures[0].text)
        self.assertIn("stand-in: killed for mmap", outcome.failures[0].text)

    def test_options_reach_the_library_and_yield_to_the_programs(self) -> None:
        self.assertIn(
            "freestone: option cache_bytes:0", play(Axis("a", options="confirm:true,cache_bytes:0")).failures[0].text
        )
        os.environ["FREESTONE_CONF"] = "cache_bytes:4096"
        self.addCleanup(os.environ.pop, "FREESTONE_CONF")
        self.assertIn("cache_bytes:4096", play(Axis("a", options="confirm:true,cache_bytes:0")).failures[0].text)

    def test_a_rule_that_cannot_be_read_ends_the_program(self) -> None:
        for rule in ("nonsense=EPERM", "mmap=EWHAT", "mmap", "mmap=EPERM!3"):
            self.assertIn("stand-in: cannot read the rule", play(Axis("a", rule)).failures[0].text)


GTEST = """[==========] Running 2 tests from 1 test suite.
[ RUN      ] Suite.Misses
file.cc:1: Failure
[  FAILED  ] Suite.Misses (0 ms)
[ RUN      ] Suite.Holds
[       OK ] Suite.Holds (0 ms)
[==========] 2 tests from 1 test suite ran. (0 ms total)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Suite.Misses
"""
UNITTEST = """test_a (__main__.T.test_a) ... FAIL

======================================================================
FAIL: test_a (__main__.T.test_a)
----------------------------------------------------------------------
Traceback (most recent call last):
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 1 test in 0.1s
"""


class Judgement(unittest.TestCase):
    def cases(self, text: str, status: int | None) -> list[tuple[str, bool]]:
        return [(failure.case, failure.hurt) for failure in judged(text, status, 1)]

    def test_cases_that_miss_are_named(self) -> None:
        self.assertEqual(self.cases(GTEST, 1), [("Suite.Misses", False)])
        self.assertEqual(self.cases(UNITTEST, 1), [("test_a", False)])

    def test_a_program_that_does_not_come_to_its_end_is_hurt(self) -> None:
        self.assertEqual(self.cases(GTEST, -signal.SIGSEGV), [("Suite.Misses", False), (END, True)])
        self.assertEqual(self.cases(GTEST, None), [("Suite.Misses", False), (END, True)])
        self.assertEqual(self.cases("status 2", 2), [(END, False)])

    def test_want_of_memory_explains_an_end_and_a_fault_near_null(self) -> None:
        self.assertEqual(self.cases("what(): std::bad_alloc", -signal.SIGABRT), [(END, False)])
        self.assertEqual(self.cases("stand-in: fault at 0x10 by /x+0x1", -signal.SIGSEGV), [(END, False)])
        self.assertEqual(self.cases("stand-in: fault at 0x7f0000000000 by /x+0x1", -signal.SIGSEGV), [(END, True)])

    def test_damage_is_never_explained(self) -> None:
        for words in (
            "content changed",
            "freestone: lost memory of 0x10 (…)",
            "freestone: double free of 0x7f00 (block of 16 bytes)",
            "freestone: SLAB-2 does not hold: condition",
            "stand-in: the heap is damaged: a slab",
            "stand-in: killed for prctl, called at",
        ):
            self.assertEqual(self.cases(f"std::bad_alloc\n{words}", 1), [(END, True)], words)

    def test_a_death_that_a_test_reports_of_its_child_is_hurt(self) -> None:
        for words in (
            "ended by Segmentation fault",
            "Finished(status=-11, out='', err='')",
            "-6 != 0",
            "ran past its time",
        ):
            self.assertEqual(self.cases(words, 1), [(END, True)], words)


class Promises(unittest.TestCase):
    def test_a_row_for_what_is_missed_excuses_no_death(self) -> None:
        for row in promises.ROWS:
            named = [axis for axis in axes() if row.excuses(axis, "*", "*", False)]
            if row.kind is promises.Kind.MISSED:
                self.assertFalse([axis for axis in named if row.excuses(axis, "*", "*", True)])

    def test_every_row_names_an_axis(self) -> None:
        names = [axis.name for axis in axes()]
        self.assertEqual(len(names), len(set(names)))
        for row in promises.ROWS:
            for pattern in row.axes.split():
                one = promises.Row(row.kind, pattern, "*", "*", "")
                self.assertTrue([a for a in axes() if one.excuses(a, "t", "c", False)], f"no axis is called {pattern}")

    def test_every_call_of_the_source_has_a_row(self) -> None:
        table = set(re.findall(r"SYS_\w+", (Path(__file__).parent / "points.def").read_text()))
        sources = (Path(__file__).parents[2] / "src").rglob("*.cc")
        made = {call for path in sources for call in re.findall(r"invoke\((SYS_\w+)", path.read_text())}
        self.assertLessEqual({"SYS_mmap", "SYS_lseek"}, made)
        self.assertEqual(table, made)

    def test_every_call_is_refused_by_each_error(self) -> None:
        names = {axis.name for axis in axes()}
        for point in points():
            for error in ("EPERM", "ENOSYS", "EINVAL", "ENOMEM"):
                self.assertEqual(f"{point.name}.{error}" in names, point.need != "needed")
            self.assertEqual(f"{point.name}.KILL" in names, point.need == "optional")


if __name__ == "__main__":
    harness.main()
