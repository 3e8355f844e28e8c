"""Guarded samples: each misuse is reported with kind, block and stacks; a program without misuse sees nothing."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import harness

SIZES = (12, 24, 100, 4096, 5000, 200_000)  # of 12 bytes all but 6 in a million are guarded


def run(case: str, size: int, conf: str = "guard_sample:1,guard_slots:256") -> harness.Finished:
    return harness.run([harness.PROBES / "guard_probe", case, str(size)], extra={"FREESTONE_CONF": conf})


# None of its functions is exported: only the file's own symbol table names them.
HIDDEN = """
#include <stdlib.h>
static char *volatile block;
static void __attribute__((noinline)) maker(void) { block = malloc(100); __asm__ volatile(""); }
static void __attribute__((noinline)) ender(void) { free(block); __asm__ volatile(""); }
static int __attribute__((noinline)) user(void) { int got = block[3]; __asm__ volatile("" : "+r"(got)); return got; }
static void __attribute__((noinline)) wrong(void *where) { free(where); __asm__ volatile(""); }
int main(int argc, char **argv) {
  maker();
  if (argc > 1 && argv[1][0] == 'o') block[100] = 1;
  if (argc > 1 && argv[1][0] == 'w') wrong(&argc);
  ender();
  return user();
}
"""


def stack(title: str, function: str) -> str:
    """A stack under its title that the function is in."""
    return rf"(?m)^{title} by thread \d+:\n(?:  #\d .*\n)*?  #\d+ 0x[0-9a-f]+ {function}\+0x"


class Hidden(unittest.TestCase):
    """A program as it is shipped: no name is exported."""

    program: Path

    @classmethod
    def setUpClass(cls) -> None:
        harness.require_freestone("a promise of libfreestone")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.program = Path(folder.name) / "hidden"
        source = cls.program.with_suffix(".c")
        source.write_text(HIDDEN)
        subprocess.run([harness.COMPILER, "-O1", "-w", "-o", cls.program, source], check=True)

    def test_every_stack_of_a_guarded_block_has_names(self) -> None:
        done = harness.run([self.program], extra={"FREESTONE_CONF": "guard_sample:1"})
        for title, function in ((" at", "user"), (" allocated", "maker"), (" freed", "ender")):
            self.assertRegex(done.err, stack(title, function) + r"[0-9a-f]+ \(hidden\+")

    def test_a_misuse_that_the_heap_sees_has_its_stack_while_anything_is_sampled(self) -> None:
        for conf, stacks in (("prof:true,prof_final:false", 1), ("guard_sample:1g", 1), ("", 0)):
            done = harness.run([self.program, "wrong"], extra={"FREESTONE_CONF": conf})
            self.assertIn("invalid free of 0x", done.err)
            self.assertEqual(len(re.findall(stack(" at", "wrong"), done.err)), stacks, done.err)

    @unittest.skipUnless(harness.IS_HARDENED, "the fast build does not look behind a block")
    def test_a_misuse_of_a_sampled_block_says_who_allocated_it(self) -> None:
        conf = "prof:true,prof_sample_bytes:1,prof_final:false"
        done = harness.run([self.program, "over"], extra={"FREESTONE_CONF": conf})
        for title, function in ((" at", "ender"), (" allocated", "maker")):
            self.assertRegex(done.err, stack(title, function))


class Guards(unittest.TestCase):
    def setUp(self) -> None:
        harness.require_freestone("a promise of libfreestone")

    def check(self, case: str, kind: str, status: int, lines: tuple[str, ...], sizes: tuple[int, ...] = SIZES) -> None:
        for size in sizes:
            done = run(case, size)
            with self.subTest(case=case, size=size):
                self.assertEqual(done.status, -status, done.err)
                self.assertRegex(done.err, rf"(?m)^freestone: {kind} of 0x[0-9a-f]+ \(block of {size} bytes\)$")
                for line in lines:
                    self.assertRegex(done.err, rf"(?m)^ {line}")
                self.assertRegex(done.err, r"(?m)^ allocated by thread \d+:\n  #0 .*place_of_allocation\+0x")

    def test_overflow(self) -> None:
        self.check(
            "overflow_write",
            "heap buffer overflow",
            signal.SIGSEGV,
            (r"write at 0x[0-9a-f]+, \d+ bytes after its end", "at by thread"),
        )
        self.check(
            "overflow_read", "heap buffer overflow", signal.SIGSEGV, (r"read at 0x[0-9a-f]+, \d+ bytes after its end",)
        )
        self.check("overflow_far", "heap buffer overflow", signal.SIGSEGV, (r"write at",))

    def test_underflow(self) -> None:
        self.check(
            "underflow_write",
            "heap buffer underflow",
            signal.SIGSEGV,
            ("write at 0x[0-9a-f]+, 1 bytes before the block",),
        )
        self.check(
            "underflow_read",
            "heap buffer underflow",
            signal.SIGSEGV,
            ("read at 0x[0-9a-f]+, 100 bytes before the block",),
        )

    def test_overflow_within_the_alignment_is_seen_at_the_free(self) -> None:
        self.check(
            "overflow_slack",
            "heap buffer overflow",
            signal.SIGABRT,
            ("seen at its free by thread", r"freed by thread"),
            sizes=(12, 24, 100, 5000),
        )
        self.check(
            "underflow_slack",
            "heap buffer underflow",
            signal.SIGABRT,
            ("seen at its free by thread",),
            sizes=(12, 24, 100, 5000),
        )

    def test_use_after_free(self) -> None:
        freed = r"freed by thread \d+:\n  #0 .*place_of_free\+0x"
        self.check(
            "use_after_free_write",
            "use after free",
            signal.SIGSEGV,
            (r"write at 0x[0-9a-f]+, 0 bytes into the block", freed),
        )
        self.check("use_after_free_read", "use after free", signal.SIGSEGV, (r"read at", freed))
        self.check("use_after_free_late", "use after free", signal.SIGSEGV, (freed,))
        self.check("realloc_after_free", "use after free", signal.SIGABRT, (freed,))

    def test_double_free(self) -> None:
        self.check(
            "double_free",
            "double free",
            signal.SIGABRT,
            ("freed again by thread", r"freed by thread \d+:\n  #0 .*place_of_free\+0x"),
        )

    def test_invalid_free(self) -> None:
        self.check(
            "invalid_free",
            "invalid free",
            signal.SIGABRT,
            ("invalid free at 0x[0-9a-f]+, 16 bytes into the block",),
            sizes=(24, 100, 5000),
        )

    def test_without_guard_install_pages_are_protected(self) -> None:
        for case, kind in (
            ("old_kernel_overflow_write", "heap buffer overflow"),
            ("old_kernel_underflow_write", "heap buffer underflow"),
            ("old_kernel_use_after_free_write", "use after free"),
        ):
            done = run(case, 100)
            if done.status == harness.SKIPPED:
                self.skipTest("no seccomp here")
            self.assertEqual(done.status, -signal.SIGSEGV, done.err)
            self.assertIn(f"freestone: {kind} of 0x", done.err)
        done = run("old_kernel_clean", 100)
        self.assertEqual((done.status, done.err), (0, ""))

    def test_no_false_alarm(self) -> None:
        for size in (0, 1, *SIZES):
            for slots in (4, 64, 256):
                done = run("clean", size, f"guard_sample:1,guard_slots:{slots}")
                self.assertEqual((done.status, done.err), (0, ""), (size, slots))

    def test_the_number_of_slots_changes_while_the_program_runs(self) -> None:
        for size in (1, 500, 5000):
            done = run("slots_change", size, "guard_sample:4k,guard_slots:64")
            self.assertEqual((done.status, done.err), (0, ""), size)

    def test_pages_that_stay_forbidden_are_not_handed_out(self) -> None:
        for case in ("limit_below_use", "old_kernel_limit_below_use"):
            done = run(case, 3000, "guard_sample:1,guard_slots:64")
            if done.status == harness.SKIPPED:
                self.skipTest("no seccomp here")
            self.assertEqual((done.status, done.err), (0, ""), case)

    def test_freed_blocks_that_wait_have_no_memory(self) -> None:
        for case in ("freed_memory", "old_kernel_freed_memory"):
            done = run(case, 0)
            if done.status == harness.SKIPPED:
                self.skipTest("no seccomp here")
            self.assertEqual((done.status, done.err), (0, ""), case)

    def test_faults_that_are_not_ours_end_the_program_silently(self) -> None:
        done = run("wild_fault", 100)
        self.assertEqual((done.status, done.err), (-signal.SIGSEGV, ""))

    def test_a_handler_of_the_program_is_left_alone(self) -> None:
        done = run("handler_before", 100)
        self.assertEqual((done.status, done.out), (0, "handled\n"))

    def test_off_by_default(self) -> None:
        done = run("underflow_slack", 100, "guard_sample:0")
        self.assertNotIn("heap buffer", done.err)

    def test_real_programs_run_with_every_block_guarded(self) -> None:
        code = "import json;print(len(json.dumps([{'a':i,'b':[i]*3} for i in range(3000)])))"
        plain = harness.run(["/usr/bin/python3", "-I", "-c", code], extra={"PYTHONMALLOC": "malloc"})
        guarded = harness.run(
            ["/usr/bin/python3", "-I", "-c", code],
            extra={"PYTHONMALLOC": "malloc", "FREESTONE_CONF": "guard_sample:300,guard_slots:2000"},
        )
        self.assertEqual((guarded.status, guarded.out, guarded.err), (0, plain.out, ""))

    def test_stacks_of_reports_are_whole(self) -> None:
        err = run("overflow_write", 100).err
        for title in ("at by thread", "allocated by thread"):
            block = re.search(rf"(?m)^ {title} \d+:\n((?:  #.*\n)+)", err)
            assert block, err
            self.assertIn("__libc_start_main", block[1])


if __name__ == "__main__":
    harness.main()
