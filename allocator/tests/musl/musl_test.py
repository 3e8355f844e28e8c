"""The libraries for musl: built with Debian's musl-tools, then preloaded, linked, and inside static programs.

usage: musl_test.py BUILD     the folder of this build, in which one for musl is made
"""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from support import harness

REPOSITORY = Path(__file__).resolve().parents[3]
BUILD = Path(sys.argv.pop()).resolve() / "musl"
PROGRAMS = BUILD / "allocator" / "tests" / "musl"
LIBRARIES = {"freestone": BUILD / "libfreestone.so.1", "freestone_hardened": BUILD / "libfreestone-hardened.so.1"}


def build() -> None:
    jobs = str(min(os.cpu_count() or 1, 4))
    for command in (
        ["cmake", "--preset", "musl", "-B", BUILD],
        ["cmake", "--build", BUILD, "-j", jobs, "--target", "libraries", "musl_programs"],
    ):
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}")


class Musl(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        if shutil.which("musl-gcc") is None:
            raise unittest.SkipTest("musl-tools are not installed")
        build()

    def serves(self, program: str, library: Path | None, *words: str, conf: str = "") -> None:
        done = harness.run([PROGRAMS / program, *words], library=library, extra={"FREESTONE_CONF": conf})
        self.assertEqual((done.status, done.out, done.err), (0, "done\n", ""), program)

    def test_the_probe_is_right_without_a_library(self) -> None:
        self.serves("probe_plain", None)

    def test_preloaded(self) -> None:
        for library in LIBRARIES.values():
            with self.subTest(library.name):
                self.serves("probe_plain", library, "served")
                self.serves("probe_plain", library, "served", conf="background_purge:true,guard_sample:64k")

    def test_switched_off(self) -> None:
        for library in LIBRARIES.values():
            done = harness.run([PROGRAMS / "probe_plain"], library=library, extra={"FREESTONE_DISABLE": "1"})
            self.assertEqual((done.status, done.out, done.err), (0, "done\n", ""), library.name)

    def test_linked(self) -> None:
        for library in LIBRARIES:
            for form in ("", "_static", "_object", "_fully_static"):
                with self.subTest(library + form):
                    self.serves(f"probe_{library}{form}", None, "served")

    def test_only_libc_is_needed(self) -> None:
        for library in LIBRARIES.values():
            shown = subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=True).stdout
            self.assertEqual([line.split()[-1] for line in shown.splitlines() if "(NEEDED)" in line], ["[libc.so]"])

    def test_a_static_hardened_program_sees_misuse(self) -> None:
        # Not what only the end of the program would show: there it looks at large blocks when it knows that no other
        # thread runs, which musl does not tell.
        for kind in ("double free", "libc call", "free of", "seen at flush", "size given"):
            with self.subTest(kind):
                command = [PROGRAMS / "enumerated", "--rounds", "8", "--expect", "1", "--kind", kind]
                done = harness.run(command, library=None)
                self.assertEqual(done.status, 0, done)


if __name__ == "__main__":
    harness.main()
