"""Guarded samples: each misuse is reported with kind, block and stacks; a program without misuse sees nothing."""

import re
import signal
import unittest

from support import harness

AT = "0x[0-9a-f]+"
BEHIND = r"\d+ bytes after its end"
SIZES = (12, 24, 100, 4096, 5000, 200_000)  # of 12 bytes all but 6 in a million are guarded
EVERY = "guard_sample:1,guard_slots:256"


def run(
    case: str, size: int = 100, conf: str = EVERY, old_kernel: bool = False, probe: str = "guard_probe"
) -> harness.Finished:
    """One act of the probe; on an old kernel there is no madvise(MADV_GUARD_INSTALL)."""
    before = [harness.PROBES / "refuse_advice", "102", "--"] if old_kernel else []
    done = harness.run([*before, harness.PROBES / probe, case, str(size)], conf=conf)
    if done.status == harness.SKIPPED:
        raise unittest.SkipTest("no seccomp here")
    return done


def stack(title: str, function: str) -> str:
    """A stack under its title that the function is in."""
    return rf"(?m)^{title} by thread \d+:\n(?:  #\d .*\n)*?  #\d+ 0x[0-9a-f]+ {function}\+0x"


class Hidden(harness.FreestoneTest):
    """A program as it is shipped: no name is exported, only the file's own symbol table has them."""

    def run_hidden(self, case: str, conf: str) -> str:
        return run(case, conf=conf, probe="hidden_probe").err

    def test_every_stack_of_a_guarded_block_has_names(self) -> None:
        err = self.run_hidden("use_after_free_read", "guard_sample:1")
        for title, place in ((" at", "use"), (" allocated", "allocation"), (" freed", "free")):
            self.assertRegex(err, stack(title, rf"\w*place_of_{place}\w*") + r"[0-9a-f]+ \(hidden_probe\+")

    def test_a_misuse_that_the_heap_sees_has_its_stack_while_anything_is_sampled(self) -> None:
        for conf, stacks in (("prof:true,prof_final:false", 1), ("guard_sample:1g", 1), ("", 0)):
            err = self.run_hidden("foreign_free", conf)
            self.assertIn("invalid free of 0x", err)
            self.assertEqual(len(re.findall(stack(" at", "place_of_free"), err)), stacks, err)

    @unittest.skipUnless(harness.IS_HARDENED, "the fast build does not look behind a block")
    def test_a_misuse_of_a_sampled_block_says_who_allocated_it(self) -> None:
        err = self.run_hidden("unguarded_overflow", "prof:true,prof_sample_bytes:1,prof_final:false")
        for title, place in ((" at", "free"), (" allocated", "allocation")):
            self.assertRegex(err, stack(title, f"place_of_{place}"))


FREED = r"freed by thread \d+:\n  #0 .*place_of_free\+0x"
SLACK = (12, 24, 100, 5000)  # with bytes between the end and the next multiple of 16
SEGV, ABRT = signal.SIGSEGV, signal.SIGABRT
# Case, kind, signal, sizes, lines of the report.
MISUSES = (
    ("overflow_write", "heap buffer overflow", SEGV, SIZES, [f"write at {AT}, {BEHIND}", "at by thread"]),
    ("overflow_read", "heap buffer overflow", SEGV, SIZES, [f"read at {AT}, {BEHIND}"]),
    ("overflow_far", "heap buffer overflow", SEGV, SIZES, ["write at"]),
    ("underflow_write", "heap buffer underflow", SEGV, SIZES, [f"write at {AT}, 1 bytes before the block"]),
    ("underflow_read", "heap buffer underflow", SEGV, SIZES, [f"read at {AT}, 100 bytes before the block"]),
    ("overflow_slack", "heap buffer overflow", ABRT, SLACK, ["seen at its free by thread", "freed by thread"]),
    ("underflow_slack", "heap buffer underflow", ABRT, SLACK, ["seen at its free by thread"]),
    ("use_after_free_write", "use after free", SEGV, SIZES, [f"write at {AT}, 0 bytes into the block", FREED]),
    ("use_after_free_read", "use after free", SEGV, SIZES, ["read at", FREED]),
    ("use_after_free_late", "use after free", SEGV, SIZES, [FREED]),
    ("realloc_after_free", "use after free", ABRT, SIZES, [FREED]),
    ("double_free", "double free", ABRT, SIZES, ["freed again by thread", FREED]),
    ("invalid_free", "invalid free", ABRT, (24, 100, 5000), [f"invalid free at {AT}, 16 bytes into the block"]),
)
# What is silent: act, sizes, options, and whether an older kernel is met, too.
SILENT = (
    *(("clean", (0, 1, *SIZES), f"guard_sample:1,guard_slots:{slots}", False) for slots in (4, 64, 256)),
    ("clean", (100,), EVERY, True),
    ("slots_change", (1, 500, 5000), "guard_sample:4k,guard_slots:64", False),
    ("limit_below_use", (3000,), "guard_sample:1,guard_slots:64", False),
    ("limit_below_use", (3000,), "guard_sample:1,guard_slots:64", True),
    ("freed_memory", (0,), EVERY, False),  # freed blocks that wait have none
    ("freed_memory", (0,), EVERY, True),
)


class Guards(harness.FreestoneTest):
    def test_each_misuse_is_reported_with_its_kind_block_and_stacks(self) -> None:
        for case, kind, ended_by, sizes, lines in MISUSES:
            for size in sizes:
                done = run(case, size)
                with self.subTest(case=case, size=size):
                    self.assertEqual(done.status, -ended_by, done.err)
                    self.assertRegex(done.err, rf"(?m)^freestone: {kind} of {AT} \(block of {size} bytes\)$")
                    for line in (*lines, r"allocated by thread \d+:\n  #0 .*place_of_allocation\+0x"):
                        self.assertRegex(done.err, rf"(?m)^ {line}")

    def test_without_guard_install_pages_are_protected(self) -> None:
        for case, kind, *_ in MISUSES:
            if case in ("overflow_write", "underflow_write", "use_after_free_write"):
                done = run(case, old_kernel=True)
                self.assertEqual(done.status, -SEGV, done.err)
                self.assertIn(f"freestone: {kind} of 0x", done.err)

    def test_what_is_right_is_silent(self) -> None:
        for case, sizes, conf, old_kernel in SILENT:
            for size in sizes:
                with self.subTest(case=case, size=size, conf=conf, old_kernel=old_kernel):
                    done = run(case, size, conf, old_kernel)
                    self.assertEqual((done.status, done.err), (0, ""))

    def test_faults_that_are_not_ours_end_the_program_silently_and_its_own_handler_is_left_alone(self) -> None:
        for case, ended in (("wild_fault", (-SEGV, "", "")), ("handler_before", (0, "handled\n", ""))):
            done = run(case)
            self.assertEqual((done.status, done.out, done.err), ended, case)

    def test_off_by_default(self) -> None:
        self.assertNotIn("heap buffer", run("underflow_slack", conf="guard_sample:0").err)

    def test_real_programs_run_with_every_block_guarded(self) -> None:
        code = "import json;print(len(json.dumps([{'a':i,'b':[i]*3} for i in range(3000)])))"
        plain, guarded = (
            harness.run(["/usr/bin/python3", "-I", "-c", code], conf=conf, extra={"PYTHONMALLOC": "malloc"})
            for conf in ("", "guard_sample:300,guard_slots:2000")
        )
        self.assertEqual((guarded.status, guarded.out, guarded.err), (0, plain.out, ""))

    def test_stacks_of_reports_are_whole(self) -> None:
        err = run("overflow_write").err
        for title in ("at by thread", "allocated by thread"):
            block = re.search(rf"(?m)^ {title} \d+:\n((?:  #.*\n)+)", err)
            assert block, err
            self.assertIn("__libc_start_main", block[1])


if __name__ == "__main__":
    harness.main()
