"""How the library comes into a process: first of all, late, repeatedly, and how it leaves."""

from __future__ import annotations

import unittest

from support import harness
from support.harness import PROBES, run

EARLY = PROBES / "early.so"


class Preloaded(unittest.TestCase):
    def test_constructors_that_run_before_ours_may_allocate(self) -> None:
        # The dynamic loader runs the constructors of the last preloaded library first.
        done = run([PROBES / "early_probe"], also_preload=[EARLY])
        self.assertEqual((done.status, done.out, done.err), (0, "early: done\n", ""))

    def test_constructors_that_run_after_ours_may_allocate(self) -> None:
        done = run([PROBES / "early_probe"], library=EARLY, also_preload=[harness.LIBRARY] if harness.LIBRARY else [])
        self.assertEqual((done.status, done.out, done.err), (0, "early: done\n", ""))

    def test_program_without_companions(self) -> None:
        done = run([PROBES / "early_probe"])
        self.assertEqual((done.status, done.out, done.err), (0, "", ""))

    def test_lazy_and_immediate_binding(self) -> None:
        for binding in ({"LD_BIND_NOW": "1"}, {}):
            done = run([PROBES / "early_probe"], also_preload=[EARLY], extra=binding)
            self.assertEqual(done.status, 0, done)

    def test_under_the_audit_of_the_loader(self) -> None:
        done = run([PROBES / "early_probe"], extra={"LD_DEBUG": "statistics"})
        self.assertEqual(done.status, 0, done)


class ThreadKeys(unittest.TestCase):
    def caches_left(self, done: harness.Finished, keys: int) -> int:
        self.assertEqual((done.status, done.err), (0, ""), done)
        self.assertEqual(done.out.split("\n")[0], f"keys {keys}")
        return int(done.out.split()[3]) if harness.IS_FREESTONE else 1

    def test_a_program_with_one_thread_has_all_of_the_c_librarys_keys(self) -> None:
        alone = int(run([PROBES / "keys_probe"], library=None).out.split()[1])
        # Its threads have no key left that would show their end, so they have no cache that they could leave behind.
        self.assertEqual(self.caches_left(run([PROBES / "keys_probe"]), alone), 1)

    def test_a_program_with_threads_has_all_keys_but_one(self) -> None:
        alone = int(run([PROBES / "keys_probe", "late"], library=None).out.split()[1])
        keys = alone - 1 if harness.IS_FREESTONE else alone
        self.assertEqual(self.caches_left(run([PROBES / "keys_probe", "late"]), keys), 1)


class Once(unittest.TestCase):
    """What a shell that is served says about its children, and finds in its environment."""

    def setUp(self) -> None:
        harness.require_freestone("a promise of libfreestone")

    def served(self, conf: str, preload: str) -> list[str]:
        script = "grep -c libfreestone /proc/$$/maps; grep -c libfreestone /proc/self/maps; echo $LD_PRELOAD"
        extra = {"FREESTONE_CONF": conf, "LD_PRELOAD": preload}
        own, child, left = run(["/bin/sh", "-c", script], extra=extra).out.split("\n")[:3]
        return [str(own != "0"), str(child != "0"), left]

    def test_the_children_are_served_unless_it_is_told_not_to(self) -> None:
        library = str(harness.LIBRARY)
        self.assertEqual(self.served("", library), ["True", "True", library])
        self.assertEqual(self.served("preload:always", library), ["True", "True", library])
        self.assertEqual(self.served("preload:once", library), ["True", "False", ""])

    def test_other_libraries_stay_in_the_list_in_their_order(self) -> None:
        library, other, last = str(harness.LIBRARY), str(EARLY), str(PROBES / "witness.so")
        for given, left in (
            (f"{library}:{other}", other),
            (f"{other}:{library}", other),
            (f"{other} {library} {last}", f"{other}:{last}"),
            (f"{library}::{library}:{last}:", last),
            (f"{library}.none:{other}:{library}", f"{library}.none:{other}"),
        ):
            with self.subTest(given):
                served = self.served("preload:once", given)
                self.assertEqual(served, ["True", "False", left])

    def test_a_name_without_a_folder_is_found(self) -> None:
        assert harness.LIBRARY is not None
        script = "grep -c libfreestone /proc/self/maps; echo [$LD_PRELOAD]"
        extra = {
            "FREESTONE_CONF": "preload:once",
            "LD_PRELOAD": harness.LIBRARY.name,
            "LD_LIBRARY_PATH": str(harness.LIBRARY.parent),
        }
        self.assertEqual(run(["/bin/sh", "-c", script], extra=extra).out, "0\n[]\n")


class LoadedLate(unittest.TestCase):
    def setUp(self) -> None:
        harness.require_freestone("a promise of libfreestone")

    def test_fifty_times_into_a_program_on_another_malloc(self) -> None:
        done = run([PROBES / "dlopen_probe", str(harness.LIBRARY), "50"], library=None)
        self.assertEqual((done.status, done.out, done.err), (0, "done\n", ""))

    def test_with_no_more_static_thread_storage_than_the_loader_keeps(self) -> None:
        tunables = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=512:glibc.rtld.nns=1"}
        done = run([PROBES / "dlopen_probe", str(harness.LIBRARY), "3"], library=None, extra=tunables)
        self.assertEqual((done.status, done.out, done.err), (0, "done\n", ""))

    def test_into_another_namespace(self) -> None:
        done = run([PROBES / "dlopen_probe", str(harness.LIBRARY), "1", "namespace"], library=None)
        self.assertEqual((done.status, done.out, done.err), (0, "done\n", ""))


if __name__ == "__main__":
    harness.main()
