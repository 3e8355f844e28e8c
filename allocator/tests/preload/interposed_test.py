"""Beside others that define the functions: libraries before and behind ours, whatever theirs do, allocations included,
and programs that replace operators."""

import datetime
import unittest
from pathlib import Path

from support import harness
from support.harness import PROBES, run

INTERPOSER = PROBES / "interposer.so"
# Every part that has a thread, a signal or a file of its own.
ALL_OPTIONS = (
    "background_purge:true,prof:true,prof_file:/dev/null,stats_signal:40,stats_file:/dev/null,guard_sample:64k"
)


class Allocating(unittest.TestCase):
    def test_before_and_behind_the_library_with_every_option(self) -> None:
        for conf in ("", ALL_OPTIONS):
            for first, second in ((INTERPOSER, harness.LIBRARY), (harness.LIBRARY, INTERPOSER)):
                with self.subTest(first=first, conf=conf):
                    behind = [second] if second else []
                    done = run([PROBES / "calls_probe"], library=first, also_preload=behind, conf=conf)
                    self.assertEqual(
                        (done.status, set(done.out.splitlines())), (0, {"done", "interposer: called"}), done
                    )


class Counting(unittest.TestCase):
    """NEW-2: who counts malloc and free counts the operators of C++, as with libstdc++'s."""

    def expect_what_libstdcxx_does(self, *arguments: str, ahead: str = "") -> None:
        probe = [PROBES / "counting_probe", *arguments]
        first = [PROBES / f"{ahead}.so"] if ahead else []
        alone = run(probe, library=None, also_preload=first)
        self.assertEqual((alone.status, alone.err), (0, ""), alone)
        own = [harness.LIBRARY] if harness.LIBRARY else []
        for conf in ("", "prof:true,prof_final:false", "guard_sample:64k"):
            done = run(probe, library=None, also_preload=[*first, *own], extra={"FREESTONE_CONF": conf})
            self.assertEqual((done.status, done.out, done.err), (0, alone.out, ""), conf)

    def test_by_a_library_ahead(self) -> None:
        self.expect_what_libstdcxx_does(ahead="counting")

    def test_by_an_allocator_of_its_own(self) -> None:
        self.expect_what_libstdcxx_does(ahead="counting_own")

    def test_by_a_tool_that_comes_and_goes(self) -> None:
        self.expect_what_libstdcxx_does("late")

    def test_by_a_library_without_aligned_alloc(self) -> None:
        probe = PROBES / "counting_probe"
        preload = [PROBES / "counting_plain.so", *([harness.LIBRARY] if harness.LIBRARY else [])]
        done = run([probe], library=None, also_preload=preload)
        self.assertEqual((done.status, done.err), (0, ""), done)
        self.assertIn("one thread: 44 0 ", done.out)

    def test_not_by_a_program_whose_entries_lead_to_the_library(self) -> None:
        harness.require_freestone("a promise of libfreestone")
        probe = PROBES / "fixed_place_probe"
        self.assertEqual(run([probe]).out, "1\n")
        mismatched = run([probe, "mismatch"])
        self.assertEqual("mismatched free" in mismatched.err, harness.IS_HARDENED, mismatched)
        counted = run([probe, "mismatch"], library=None, also_preload=[PROBES / "counting.so", harness.LIBRARY])
        self.assertEqual((counted.status, counted.out), (0, f"{harness.IS_HARDENED:d}\n"))


class Replaced(unittest.TestCase):
    """NEW-1: programs that replace some of the operators new and delete and leave the other forms to the library."""

    def test_the_forms_call_each_other_as_libstdcxxs_do(self) -> None:
        for what in ("nothing", "objects", "arrays", "aligned", "aligned_arrays", "new", "delete"):
            with self.subTest(what):
                alone = run([PROBES / f"operators_probe_{what}"], library=None)
                self.assertEqual((alone.status, alone.err, alone.out.count("\n")), (0, "", 28))
                done = run([PROBES / f"operators_probe_{what}"])
                self.assertEqual((done.status, done.out, done.err), (0, alone.out, ""))

    def test_objects_in_a_program_that_links_the_library_statically(self) -> None:
        alone = run([PROBES / "operators_probe_objects"], library=None)
        for library in ("freestone", "freestone_hardened"):
            done = run([PROBES / f"operators_probe_{library}"], library=None)
            self.assertEqual((done.status, done.out, done.err), (0, alone.out, ""))

    def test_nothing_in_a_program_that_loads_the_library_late(self) -> None:
        harness.require_freestone("a promise of libfreestone")
        done = run([PROBES / "operators_probe_nothing", str(harness.LIBRARY)], library=None)
        self.assertEqual((done.status, done.out, done.err), (0, "done\n", ""))


class Leaving(unittest.TestCase):
    """LEAVING-1: whoever watches by libc's functions, or by ours, sees each page of a block before it leaves."""

    def test_by_name_by_changed_code_and_by_the_callback_which_may_allocate(self) -> None:
        harness.require_freestone("a promise of libfreestone")
        for probe, how, came_back in (
            ("leaving_names_probe", ["names"], ""),
            ("leaving_probe", ["code"], ""),
            ("leaving_probe", ["callback"], ""),
            ("leaving_probe", ["callback", "comes back"], ", came back"),
        ):
            done = run([PROBES / probe, *how])
            self.assertEqual((done.status, done.out), (0, f"gone, 0 unseen{came_back}\n"), how)

    def test_a_name_that_comes_back_under_its_lock_is_asked_no_more(self) -> None:
        harness.require_freestone("a promise of libfreestone")
        done = run([PROBES / "leaving_names_probe", "names", "comes back"])
        self.assertRegex(f"{done.status} {done.out}", r"^0 gone, \d+ unseen, came back\n$")


class Faketime(unittest.TestCase):
    """libfaketime's clock_gettime allocates at its first call."""

    def setUp(self) -> None:
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime*.so.1"))
        if not found:
            self.skipTest("not on this machine: libfaketime")
        self.forms = found

    def test_in_both_orders_and_for_all_clocks(self) -> None:
        for form in self.forms:
            for libraries in ((form, harness.LIBRARY), (harness.LIBRARY, form)):
                for extra in ({}, {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}, {"FAKETIME_NO_CACHE": "1"}):
                    settings = {"FAKETIME": "@2001-02-03 04:05:06", "TZ": "UTC", **extra}
                    with self.subTest(libraries=libraries, extra=extra):
                        self.expect_time(libraries, settings)

    def expect_time(self, libraries: tuple[Path | None, ...], settings: dict[str, str]) -> None:
        first, second = libraries
        preload = [second] if second else []
        done = run([PROBES / "calls_probe"], library=first, also_preload=preload, extra=settings)
        self.assertEqual((done.status, done.out), (0, "done\n"), done)
        done = run(["date", "+%Y"], library=first, also_preload=preload, extra=settings)
        self.assertEqual((done.status, done.out), (0, f"{datetime.date(2001, 2, 3).year}\n"), done)


if __name__ == "__main__":
    harness.main()
