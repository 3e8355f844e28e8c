"""The library for aarch64: cross-compiled with Debian's compiler, and run by a program under emulation."""

from __future__ import annotations

import shutil
import unittest
from pathlib import Path

from packaging_support import BUILD, CLIENTS, ROOT, InFolder, answers, build_library, call

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
class Aarch64(InFolder):
    build = BUILD / "aarch64"

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        toolchain = f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake"
        build_library(cls.build, toolchain, targets=("freestone", "freestone_hardened", "freestone_object_file"))

    def run_client(self, source: str, *link: str | Path, space: int = 0) -> tuple[Path, dict[str, str]]:
        program = self.folder / Path(source).stem
        call(COMPILER, "-O1", "-pthread", "-o", program, CLIENTS / source, "-I", INCLUDE, *link)
        emulated = (EMULATOR, "-R", hex(space), "-L", SYSTEM, "-E", f"LD_LIBRARY_PATH={self.build}")
        return program, answers(*emulated, program)

    def test_a_program_is_served_by_the_shared_library(self) -> None:
        _, found = self.run_client("served.c", "-L", self.build, "-lfreestone")
        self.assertEqual(Path(found["malloc"]).resolve(), (self.build / "libfreestone.so").resolve())

    def test_a_program_is_served_by_the_object(self) -> None:
        program, found = self.run_client("served.c", self.build / "freestone.o")
        self.assertEqual(Path(found["malloc"]).name, program.name)

    def test_threads_exchange_blocks(self) -> None:
        _, found = self.run_client("threads.c", "-L", self.build, "-lfreestone")
        self.assertEqual(found, {"damaged": "0", "valid": "1"})

    def test_an_address_space_of_39_bits_has_room(self) -> None:
        """As kernels of phones and small boards give it."""
        for library in ("freestone", "freestone-hardened"):
            with self.subTest(library):
                _, found = self.run_client("threads.c", "-L", self.build, f"-l{library}", space=1 << 39)
                self.assertEqual(found, {"damaged": "0", "valid": "1"})


if __name__ == "__main__":
    harness.main()
