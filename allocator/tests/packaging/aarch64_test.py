"""The library for aarch64: cross-compiled with Debian's compiler, and run by a program under emulation."""

import re
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

    def hit_path(self, library: str, function: str) -> list[str]:
        """The function's instructions up to its first return."""
        of = self.build / f"lib{library}.so"
        tool = "aarch64-linux-gnu-"
        names = call(f"{tool}nm", "-D", "--without-symbol-versions", of)
        found = re.search(rf"^([0-9a-f]+) \w {function}$", names, re.M)
        assert found is not None
        text = call(f"{tool}objdump", "-d", "--no-show-raw-insn", f"--start-address=0x{found[1]}", of)
        lines = re.findall(r"^ +[0-9a-f]+:\t(.*)$", text.partition("ret")[0] + "ret", re.M)
        return [line.strip() for line in lines]

    def test_hit_paths_are_short_and_wait_for_no_store(self) -> None:
        """A free orders its stores for the child of a fork alone, for which a compiler's order is enough."""
        for function, most in (("malloc", 21), ("free", 27)):
            with self.subTest(function):
                path = self.hit_path("freestone", function)
                self.assertLessEqual(len(path), most, path)
                self.assertEqual([line for line in path if re.match("stlr|dmb|dsb|blr", line)], [])
                hardened = self.hit_path("freestone-hardened", function)
                self.assertEqual([line for line in hardened if re.match(r"stlr|dmb\tish$|blr", line)], [])

    def test_an_address_space_of_39_bits_has_room(self) -> None:
        """As kernels of phones and small boards give it."""
        for library in ("freestone", "freestone-hardened"):
            with self.subTest(library):
                _, found = self.run_client("threads.c", "-L", self.build, f"-l{library}", space=1 << 39)
                self.assertEqual(found, {"damaged": "0", "valid": "1"})


if __name__ == "__main__":
    harness.main()
