"""The matrix itself: its stand-in refuses what it is told to, and no death or damage passes as a miss."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

from matrix import promises
from matrix.axes import ERRORS, TOLD_APART, Axis, alike, axes, axis, in_turn, kind, points
from matrix.cells import END, Outcome, Test, judged, run
from matrix.journal import identity
from matrix.run import INTERRUPTED, NO_SUCH_CALL, OTHER_BUILD, PROVES_NOTHING, Matrix, plan, whole
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


def play(under: Axis, build: str = "") -> Outcome:
    """The program over a troubled library; it fails on purpose, so that its text can be seen."""
    settings = (("LD_PRELOAD", str(TROUBLED / f"libfreestone{build}.so.1")), ("PYTHONMALLOC", "pymalloc"))
    return run(Test("judge", (sys.executable, "-S", "-c", PROGRAM), settings), under, harness.HANG_SECONDS)


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

    def test_the_errors_that_the_source_tells_apart_are_known(self) -> None:
        sources = (Path(__file__).parents[2] / "src").rglob("*.cc")
        told = {
            (path.name, error)
            for path in sources
            for error in re.findall(r"(?:\.error|\bgot|\bdone|\bresult) [=!]= -?(E[A-Z]+)", path.read_text())
        }
        # Two callers of os::populate; the advice that tells what is mapped; map_at makes EEXIST itself; the other two
        # calls are needed.
        populate = {("slab.cc", "EINVAL"), ("region.cc", "EINVAL")}
        self.assertEqual(told, populate | {("os.cc", "ENOMEM"), ("region.cc", "EEXIST"), ("file.cc", "EINTR")})
        self.assertEqual(TOLD_APART, {"madvise_populate": ("EINVAL",), "madvise_unknown": ("ENOMEM",)})

    def test_errors_that_the_library_does_not_tell_apart_are_shared_out(self) -> None:
        def met(call: str, test: str) -> list[str]:
            mine = [a for a in axes() if a.name.startswith(call)]
            return [a.name.removeprefix(call) for a in mine if in_turn(alike(a), test) == a.name]

        tests = [f"abi.{k}.fast" for k in range(64)]
        self.assertEqual({len(met("prlimit64.", test)) for test in tests}, {2})  # one error, and KILL
        self.assertEqual({error for test in tests for error in met("mremap.", test)}, {"half", *ERRORS})
        self.assertEqual({"EINVAL" in met("madvise_populate.", test) for test in tests}, {True})
        self.assertEqual({len(met("madvise_populate.", test)) for test in tests}, {2})

    def test_degrees_of_one_axis_are_shared_out_among_tests_that_take_long(self) -> None:
        named = {a.name: a for a in axes()}
        for names in (
            ["options.cache_bytes:0", "options.cache_bytes:8m"],
            ["page.16k", "page.64k"],
            ["memory.after_4", "memory.after_12", "memory.after_40", "memory.third"],
        ):
            everything = [named[name] for name in names]
            for seconds, count in ((0.5, len(names)), (5.0, 1)):
                tests = [Test(f"abi.{k}.fast", (), ()) for k in range(64)]
                planned = plan(everything, tests, {test.name: Outcome(cpu_seconds=seconds) for test in tests})
                self.assertEqual(len(planned.cells), 64 * count)
                self.assertEqual({axis.name for axis, _ in planned.cells}, set(names))
        for name in ("madvise.half", "mremap.EPERM", "prctl.KILL", "options.pressure:true"):
            self.assertEqual([a.name for a in axes() if kind(a) == kind(named[name])], [name])


class Whole(unittest.TestCase):
    """A run that was interrupted goes on where it ended."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cells = self.folder / "result.json.cells"
        rows = unittest.mock.patch.object(promises, "ROWS", ())  # no cell here needs one
        rows.start()
        self.addCleanup(rows.stop)

    def play(self, command: str, build: str = "a") -> dict[str, Any]:
        """Three tests, the second of which is this command of a shell, in peace and under two axes that all meet, one
        of the other build and one of a call that none makes. Each test notes its name and its axis when it runs."""
        note = f'echo "$0 $STAND_IN_CONF" >>{self.folder}/ran; cd {self.folder}; '
        commands = {"abi.a.fast": "true", "abi.b.fast": command, "abi.c.fast": "true"}
        chosen = [Test(name, ("sh", "-c", note + what, name), ()) for name, what in commands.items()]
        ends = [Axis("x", options="x"), Axis("y", options="y")]
        others = [Axis("z", options="z", builds=("hardened",)), axis("mremap.EPERM", "mremap=EPERM", "mremap")]
        result = self.folder / "result.json"
        with contextlib.redirect_stdout(io.StringIO()):
            self.status = whole(Matrix(chosen), [*ends, *others], build, result)
        stored: dict[str, Any] = json.loads(result.read_text())
        return stored

    def ran(self) -> list[str]:
        return (self.folder / "ran").read_text().splitlines()

    def test_every_cell_runs_once_and_what_is_left_out_is_counted(self) -> None:
        stored = self.play("true")
        self.assertEqual(len(self.ran()), 9)
        self.assertEqual(len(set(self.ran())), 9)
        self.assertEqual((stored["whole"], stored["cells"], stored["missing"]), (True, 9, 0))
        self.assertEqual(stored["left_out"], {OTHER_BUILD: 3, NO_SUCH_CALL: 3})

    def test_a_test_that_proves_nothing_as_a_whole_is_left_out(self) -> None:
        void, missed = promises.Kind.VOID, promises.Kind.MISSED
        for rows, left_out in (
            ((promises.Row(void, "x", "abi.b.*", "*", "why"),), 1),
            ((promises.Row(void, "x", "abi.b.*", "Suite.Case", "why"),), 0),
            ((promises.Row(missed, "x", "abi.b.*", "*", "why"),), 0),
        ):
            with unittest.mock.patch.object(promises, "ROWS", rows):
                stored = self.play("true")
            self.assertEqual((stored["whole"], stored["cells"]), (True, 9 - left_out))
            self.assertEqual(stored["left_out"].get(PROVES_NOTHING, 0), left_out)
            self.cells.unlink()

    def test_after_a_signal_no_cell_that_ended_runs_again(self) -> None:
        for name in ("INT", "TERM"):
            with self.subTest(name):
                command = f'test "$STAND_IN_CONF" = x || exit 0; mkdir {name} || exit 0; kill -{name} $PPID; sleep 9999'
                stored = self.play(command)
                self.assertEqual(self.status, INTERRUPTED)
                self.assertFalse(stored["whole"])
                self.assertEqual(stored["cells"] + stored["missing"], 9)
                self.assertGreaterEqual(stored["missing"], 1)
                before = len(self.ran())
                again = self.play(command)
                self.assertEqual(len(self.ran()) - before, stored["missing"])
                self.assertEqual((again["whole"], again["cells"]), (True, 9))
                self.assertEqual(again["columns"]["x"]["findings"], [])
                self.cells.unlink()

    def test_a_line_that_was_cut_is_a_cell_that_did_not_end(self) -> None:
        self.play("true")
        whole_text = self.cells.read_bytes()
        self.cells.write_bytes(whole_text[:-7])
        self.play("true")
        self.assertEqual(len(self.ran()), 10)
        self.play("true")
        self.assertEqual(len(self.ran()), 10)

    def test_other_libraries_begin_anew(self) -> None:
        self.play("true", build="a")
        self.play("true", build="b")
        self.assertEqual(len(self.ran()), 18)
        one, two = self.folder / "one", self.folder / "two"
        one.write_text("1")
        two.write_text("2")
        self.assertNotEqual(identity([one, two]), identity([one, one]))

    def test_a_failure_stays_a_finding_and_one_that_passes_the_second_time_is_named(self) -> None:
        for command, findings, unsteady in (
            ('test "$STAND_IN_CONF" != x', [["abi.b.fast", END]], []),
            ('test "$STAND_IN_CONF" != x || ! mkdir once', [], ["abi.b.fast"]),
        ):
            for _ in range(2):  # the second time from the file
                column = self.play(command)["columns"]["x"]
                self.assertEqual([[f["test"], f["case"]] for f in column["findings"]], findings)
                self.assertEqual(column["unsteady"], unsteady)
                self.assertEqual(self.status, 1 if findings else 0)
            self.cells.unlink()

    def test_a_test_that_fails_in_peace_is_a_finding_and_runs_again(self) -> None:
        stored = self.play("test -e fixed")
        self.assertEqual([f["test"] for f in stored["columns"]["peace"]["findings"]], ["abi.b.fast"])
        self.assertEqual(stored["cells"], 7)
        (self.folder / "fixed").touch()
        self.assertEqual(self.play("test -e fixed")["cells"], 9)


if __name__ == "__main__":
    harness.main()
