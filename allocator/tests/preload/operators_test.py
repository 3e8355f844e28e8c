"""NEW-1: programs that replace some of the operators new and delete and leave the other forms to the library."""

from __future__ import annotations

import unittest

from support import harness
from support.harness import PROBES, run


class Replaced(unittest.TestCase):
    def expect_what_libstdcxx_does(self, what: str) -> None:
        alone = run([PROBES / f"operators_probe_{what}"], library=None)
        self.assertEqual((alone.status, alone.err, alone.out.count("\n")), (0, "", 28))
        done = run([PROBES / f"operators_probe_{what}"])
        self.assertEqual((done.status, done.out, done.err), (0, alone.out, ""))

    def test_nothing(self) -> None:
        self.expect_what_libstdcxx_does("nothing")

    def test_objects(self) -> None:
        self.expect_what_libstdcxx_does("objects")

    def test_arrays(self) -> None:
        self.expect_what_libstdcxx_does("arrays")

    def test_aligned_objects(self) -> None:
        self.expect_what_libstdcxx_does("aligned")

    def test_aligned_arrays(self) -> None:
        self.expect_what_libstdcxx_does("aligned_arrays")

    def test_new_alone_by_malloc(self) -> None:
        self.expect_what_libstdcxx_does("new")

    def test_delete_alone_by_free(self) -> None:
        self.expect_what_libstdcxx_does("delete")

    def test_objects_in_a_program_that_links_the_library_statically(self) -> None:
        alone = run([PROBES / "operators_probe_objects"], library=None)
        for library in ("freestone", "freestone_hardened"):
            done = run([PROBES / f"operators_probe_{library}"], library=None)
            self.assertEqual((done.status, done.out, done.err), (0, alone.out, ""))

    def test_nothing_in_a_program_that_loads_the_library_late(self) -> None:
        harness.require_freestone("a promise of libfreestone")
        done = run([PROBES / "late_operators_probe", str(harness.LIBRARY)], library=None)
        self.assertEqual((done.status, done.out, done.err), (0, "done\n", ""))


if __name__ == "__main__":
    harness.main()
