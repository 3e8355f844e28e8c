"""The library for aarch64: cross-compiled with Debian's compiler, and run by a program under emulation."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path

from packaging_support import BUILD, CLIENTS, ROOT, answers, call

from support import harness

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
SYSTEM = Path("/usr/aarch64-linux-gnu")
INCLUDE = ROOT / "allocator" / "include"


@unittest.skipUnless(
    shutil.which(COMPILER) and shutil.which("aarch64-linux-gnu-g++"),
    "no cross compiler (package g++-aarch64-linux-gnu)",
)
@unittest.skipUnless(shutil.which(EMULATOR), "no emulator (package qemu-user)")
class Aarch64(unittest.TestCase):
    build = BUILD / "aarch64"

    @classmethod
    def setUpClass(cls) -> None:
        settings = [
            f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake",
            "-DFREESTONE_TESTS=OFF",
            "-DFREESTONE_LAB=OFF",
        ]
        call("cmake", "-G", "Ninja", "-S", ROOT, "-B", cls.build, "-DCMAKE_BUILD_TYPE=Release", *settings)
        call("cmake", "--build", cls.build, "-j2", "--target", "freestone", "freestone_object_file")

    def run_client(self, *link: str | Path) -> tuple[Path, dict[str, str]]:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "served"
            call(COMPILER, "-o", program, CLIENTS / "served.c", "-I", INCLUDE, *link)
            return program, answers(EMULATOR, "-L", SYSTEM, "-E", f"LD_LIBRARY_PATH={self.build}", program)

    def test_a_program_is_served_by_the_shared_library(self) -> None:
        _, found = self.run_client("-L", self.build, "-lfreestone")
        self.assertEqual(Path(found["malloc"]).resolve(), (self.build / "libfreestone.so").resolve())

    def test_a_program_is_served_by_the_object(self) -> None:
        program, found = self.run_client(self.build / "freestone.o")
        self.assertEqual(Path(found["malloc"]).name, program.name)

    def test_threads_exchange_blocks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "threads"
            call(
                COMPILER,
                "-O1",
                "-pthread",
                "-o",
                program,
                CLIENTS / "threads.c",
                "-I",
                INCLUDE,
                "-L",
                self.build,
                "-lfreestone",
            )
            found = answers(EMULATOR, "-L", SYSTEM, "-E", f"LD_LIBRARY_PATH={self.build}", program)
        self.assertEqual(found, {"damaged": "0", "valid": "1"})


if __name__ == "__main__":
    harness.main()
