"""The table of the programs' own suites, and how two runs of one are compared; needs no program and no network."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from preload import selection, sources, suites, survey
from preload.program import Program
from support import harness

CHILD_HOLDS_64_MIB = "os.fork() or os._exit(bytearray(64 << 20)[0]); os.wait()"


def surveyed(outputs: Sequence[str]) -> survey.Row:
    """What is said of a program that prints these: without a library, under the two, and without once more."""
    plays = iter([survey.Play(text, processes=3 + i) for i, text in enumerate(outputs)])
    libraries = [Path("fast"), Path("hardened")]
    with mock.patch.object(survey, "LIBRARIES", libraries):
        return survey.survey("suite", Program((), "", lambda _: ""), lambda *_: next(plays))


class Table(unittest.TestCase):
    def test_each_of_the_promised_suites_is_there(self) -> None:
        promised = {"cpython", "perl", "ruby", "redis", "git", "sqlite", "php", "node", "postgres", "glibc"}
        self.assertLessEqual(promised, set(suites.SUITES))

    def test_no_test_is_chosen_twice(self) -> None:
        for name in (
            n for n in vars(selection) if n.isupper() and isinstance(getattr(selection, n), str) and "_" not in n
        ):
            words = getattr(selection, name).split()
            self.assertEqual(len(words), len(set(words)), name)

    def test_each_suite_names_the_packages_it_comes_from(self) -> None:
        for name, suite in suites.SUITES.items():
            self.assertTrue(suite.packages and suite.program.needs, name)


class Results(unittest.TestCase):
    def test_times_and_addresses_make_no_difference(self) -> None:
        one, other = (
            suites.results(f"ok 1 - at {a} in {t} ms\n", r"^(?P<result>ok) (?P<name>.*)$")
            for a, t in (("0x7f01", 3), ("0x55a0", 14))
        )
        self.assertEqual(one, other)

    def test_a_test_that_turns_bad_or_is_missing_is_seen(self) -> None:
        good = suites.tap("t", 0, "ok 1 - a\nok 2 - b\n")
        self.assertEqual(good, ["t: ended with 0", "t 1 - a: ok", "t 2 - b: ok"])
        for text in ("ok 1 - a\nnot ok 2 - b\n", "ok 1 - a\n", "ok 1 - a\nok 2 - b\nok 2 - b\n"):
            self.assertNotEqual(suites.tap("t", 0, text), good)
        self.assertNotEqual(suites.tap("t", -6, "ok 1 - a\nok 2 - b\n"), good)


class Comparison(unittest.TestCase):
    def test_equal_runs_count_their_tests_and_the_fewest_processes(self) -> None:
        row = surveyed(["a: ok\nb: failed"] * 3)
        self.assertEqual((row.verdict, row.tests, row.processes), ("same", 2, 3))

    def test_a_difference_under_one_library_names_the_test(self) -> None:
        row = surveyed(["a: ok\nb: ok", "a: ok\nb: ok", "a: ok\nb: failed", "a: ok\nb: ok"])
        self.assertEqual((row.verdict, row.detail), ("differs", "hardened: -b: ok, +b: failed"))

    def test_a_suite_that_differs_from_itself_is_not_judged(self) -> None:
        self.assertEqual(surveyed(["a: ok", "a: failed", "a: ok", "a: failed"]).verdict, "unsteady")


class Peak(unittest.TestCase):
    def started(self, *command: str) -> tuple[int, int]:
        """How it ended, and its peak in KiB."""
        with tempfile.NamedTemporaryFile("r") as file:
            done = subprocess.run([harness.PROBES / "peak", file.name, *command], check=False)
            return done.returncode, int(file.read())

    def test_a_small_program_is_not_given_the_memory_of_the_one_that_started_it(self) -> None:
        held = bytearray(64 << 20)
        status, peak = self.started("/bin/true")
        self.assertEqual((status, len(held)), (0, 64 << 20))
        self.assertLess(peak, 32 << 10)

    def test_what_a_child_of_the_program_held_counts(self) -> None:
        self.assertGreater(self.started(sys.executable, "-c", f"import os; {CHILD_HOLDS_64_MIB}")[1], 64 << 10)

    def test_it_ends_as_the_program_did(self) -> None:
        self.assertEqual(self.started("/bin/sh", "-c", "exit 3")[0], 3)
        self.assertEqual(self.started("/bin/sh", "-c", "kill -9 $$")[0], -signal.SIGKILL)

    def test_a_request_to_end_reaches_the_program(self) -> None:
        # Nothing runs for long: a child that does not run yet can miss the signal, and would hold the output open.
        script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done"
        command = [harness.PROBES / "peak", "/dev/null", "/bin/sh", "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.terminate()
            self.assertEqual(process.wait(), 5)


class Sources(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = Path(folder.name)
        self.enterContext(mock.patch.dict(os.environ, {"FREESTONE_SOURCES": folder.name}))
        (self.store / "some" / "unpacked").mkdir(parents=True)

    def test_a_build_runs_once(self) -> None:
        for _ in range(2):
            folder = sources.prepared("some", "echo once >> count")
        self.assertEqual((folder / "count").read_text(), "once\n")

    def test_a_build_that_fails_is_a_reason_and_is_tried_again(self) -> None:
        for _ in range(2):
            with self.assertRaisesRegex(sources.Unavailable, "the source of some does not build"):
                sources.prepared("some", "echo no; false; true")

    def test_without_its_source_a_suite_is_skipped_with_the_reason(self) -> None:
        program = Program((), "", lambda _: "passed", "other")
        with mock.patch.object(sources, "fetch", side_effect=sources.Unavailable("not to be had")):
            self.assertEqual(survey.play(program, None).skipped, "not to be had")


if __name__ == "__main__":
    unittest.main(verbosity=2)
