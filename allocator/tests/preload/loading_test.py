"""How the library comes into a process: first of all, late, repeatedly, and how it leaves."""

import unittest
from pathlib import Path

from support import harness
from support.harness import PROBES, run

EARLY = PROBES / "early.so"


class Expecting(unittest.TestCase):
    def expect(self, done: harness.Finished, out: str) -> None:
        self.assertEqual((done.status, done.out, done.err), (0, out, ""))


class Preloaded(Expecting):
    def test_constructors_that_run_before_or_after_ours_may_allocate(self) -> None:
        # The dynamic loader runs the constructors of the last preloaded library first.
        probe, ours = [PROBES / "early_probe"], [harness.LIBRARY] if harness.LIBRARY else []
        self.expect(run(probe, also_preload=[EARLY]), "early: done\n")
        self.expect(run(probe, library=EARLY, also_preload=ours), "early: done\n")
        self.expect(run(probe, also_preload=[EARLY], extra={"LD_BIND_NOW": "1"}), "early: done\n")

    def test_program_without_companions(self) -> None:
        self.expect(run([PROBES / "early_probe"]), "")

    def test_under_the_audit_of_the_loader(self) -> None:
        done = run([PROBES / "early_probe"], extra={"LD_DEBUG": "statistics"})
        self.assertEqual(done.status, 0, done)


class ThreadKeys(unittest.TestCase):
    """How many of the C library's keys a program has, and how many threads' caches are left when its threads end."""

    def expect_keys(self, *arguments: str, ours: int) -> None:
        probe = [PROBES / "keys_probe", *arguments]
        alone = int(run(probe, library=None).out.split()[1])
        done = run(probe)
        self.assertEqual((done.status, done.err), (0, ""), done)
        caches = "caches 1\n" if harness.IS_FREESTONE else ""
        self.assertEqual(done.out, f"keys {alone - (ours if harness.IS_FREESTONE else 0)}\n{caches}")

    def test_a_program_with_one_thread_has_all_of_the_c_librarys_keys(self) -> None:
        # Its threads have no key left that would show their end, so they have no cache that they could leave behind.
        self.expect_keys(ours=0)

    def test_a_program_with_threads_has_all_keys_but_one(self) -> None:
        self.expect_keys("late", ours=1)


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


class LoadedLate(Expecting):
    """Into a program on another malloc, by dlopen_probe LIBRARY ROUNDS [namespace]."""

    def expect_done(self, *arguments: str, **extra: str) -> None:
        harness.require_freestone("a promise of libfreestone")
        self.expect(
            run([PROBES / "dlopen_probe", str(harness.LIBRARY), *arguments], library=None, extra=extra), "done\n"
        )

    def test_fifty_times(self) -> None:
        self.expect_done("50")

    def test_with_no_more_static_thread_storage_than_the_loader_keeps(self) -> None:
        self.expect_done("3", GLIBC_TUNABLES="glibc.rtld.optional_static_tls=512:glibc.rtld.nns=1")

    def test_into_another_namespace(self) -> None:
        self.expect_done("1", "namespace")


class Deepbind(Expecting):
    """Plug-ins loaded with RTLD_DEEPBIND, as PHP loads its extensions: they would find libc's free before ours."""

    def expect_found(self, what: str, owner: str, library: Path | None = harness.LIBRARY, **extra: str) -> None:
        if library:
            harness.require_freestone("a promise of libfreestone")
        # The plug-in lies only in the folder that the finder's RUNPATH names.
        command = [PROBES / "deepbind_probe", PROBES / "deepbind_finder.so", "deepbind_plugin.so", what]
        self.expect(run(command, library=library, extra=extra), f"dlopen: {owner}\ndlmopen: {owner}\n")

    def test_a_plugin_exchanges_blocks_with_the_program(self) -> None:
        self.expect_found("exchange", "program")

    def test_the_option_keeps_the_flag(self) -> None:
        self.expect_found("look", "plugin", FREESTONE_CONF="drop_deepbind:false")

    def test_a_disabled_library_keeps_the_flag(self) -> None:
        self.expect_found("look", "plugin", FREESTONE_DISABLE="1")

    def test_without_the_library_the_flag_matters(self) -> None:
        self.expect_found("exchange", "plugin", library=None)


if __name__ == "__main__":
    harness.main()
