"""Every exported call: a block may go from any name to any other, linked, preloaded and under tools."""

import subprocess
import tempfile
import unittest
from pathlib import Path

from support import harness
from support.harness import PROBES, run

PROBE = PROBES / "surface_probe"
# Data, which another process reads (upkeep/request.h), and libc's functions that move memory or fill a buffer
# (abi/memory_calls_test.cc and abi/filling_calls_test.cc call those).
NOT_CALLED = {"freestone_conf", "freestone_request", "freestone_attention", "freestone_caches", "freestone_places"}
MEMORY = tuple("mem str stp wmem read pread recv fread fgets getcwd bcopy bzero explicit_".split())
MEMORY += tuple(f"__{name}" for name in MEMORY)
LINKED = ("shared", "object", "static", "fully_static")
TOOLS = ("memcheck", "massif", "dhat", "drd", "helgrind", "callgrind", "cachegrind")
OUTPUT_OPTIONS = {
    "massif": "--massif-out-file=/dev/null",
    "dhat": "--dhat-out-file=/dev/null",
    "callgrind": "--callgrind-out-file=/dev/null",
    "cachegrind": "--cachegrind-out-file=/dev/null",
}


def exported() -> set[str]:
    command = ["nm", "-D", "--defined-only", str(harness.LIBRARY)]
    return {line.split()[-1] for line in subprocess.check_output(command, text=True).splitlines()}


class EveryCall(unittest.TestCase):
    def test_every_exported_call_is_made(self) -> None:
        harness.require_freestone("its list of names")
        called = set(run([PROBE]).out.splitlines())
        names = {name for name in exported() if name == "memalign" or not name.startswith(MEMORY)}
        self.assertEqual(sorted(names - called - NOT_CALLED), [])

    def test_blocks_go_from_any_name_to_any_other(self) -> None:
        done = run([PROBE])
        self.assertEqual((done.status, done.out[-5:], done.err), (0, "done\n", ""))

    def test_where_the_library_is_switched_off(self) -> None:
        done = run([PROBE, "short"], extra={"FREESTONE_DISABLE": "1"})
        self.assertEqual((done.status, done.out[-5:], done.err), (0, "done\n", ""))

    def test_in_programs_that_link_the_library(self) -> None:
        harness.require_freestone("its forms")
        build = "freestone_hardened" if harness.IS_HARDENED else "freestone"
        for form in LINKED:
            for extra in ({}, {"FREESTONE_DISABLE": "1"}):
                with self.subTest(form=form, extra=extra):
                    done = run([PROBES / f"surface_probe_{build}_{form}", "short"], library=None, extra=extra)
                    self.assertEqual((done.status, done.out[-5:], done.err), (0, "done\n", ""))

    def test_reallocarray_leads_to_the_malloc_that_a_program_brings(self) -> None:
        done = run([PROBES / "own_malloc_probe"])
        self.assertEqual((done.status, done.out, done.err), (0, "own malloc\n", ""))


class UnderValgrind(unittest.TestCase):
    """A tool that replaces malloc serves all blocks, whichever call makes and takes them."""

    def valgrind(self, tool: str, *command: str | Path) -> harness.Finished:
        options = ["-q", f"--tool={tool}", *filter(None, [OUTPUT_OPTIONS.get(tool)])]
        if tool in ("memcheck", "drd", "helgrind"):
            options.append("--error-exitcode=9")
        with tempfile.TemporaryDirectory() as home:
            return run(["valgrind", *options, *command], extra={"HOME": home, "VALGRIND_OPTS": ""})

    def setUp(self) -> None:
        if subprocess.run(["sh", "-c", "command -v valgrind"], capture_output=True, check=False).returncode != 0:
            self.skipTest("valgrind is not installed")

    def test_every_call(self) -> None:
        for tool in TOOLS:
            with self.subTest(tool=tool):
                done = self.valgrind(tool, PROBE, "short")
                self.assertEqual((done.status, done.out[-5:]), (0, "done\n"), done.err)

    def test_ls(self) -> None:
        expected = run(["/bin/ls", "/"], library=None).out
        for tool in TOOLS:
            with self.subTest(tool=tool):
                done = self.valgrind(tool, "/bin/ls", "/")
                self.assertEqual((done.status, done.out), (0, expected), done.err)


if __name__ == "__main__":
    harness.main()
