"""Beside libraries that define libc's functions: before and behind ours, whatever theirs do, allocations included."""

from __future__ import annotations

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
    def expect_done(self, first: Path | None, second: Path | None, conf: str) -> None:
        done = run(
            [PROBES / "calls_probe"],
            library=first,
            also_preload=[second] if second else [],
            extra={"FREESTONE_CONF": conf},
        )
        self.assertEqual((done.status, set(done.out.splitlines())), (0, {"done", "interposer: called"}), done)

    def test_before_the_library(self) -> None:
        self.expect_done(INTERPOSER, harness.LIBRARY, "")

    def test_behind_the_library(self) -> None:
        self.expect_done(harness.LIBRARY, INTERPOSER, "")

    def test_with_every_option(self) -> None:
        self.expect_done(INTERPOSER, harness.LIBRARY, ALL_OPTIONS)
        self.expect_done(harness.LIBRARY, INTERPOSER, ALL_OPTIONS)


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
