"""The hardened library without the checks of libc's memory functions: their names are absent, the rest holds."""

import unittest
from pathlib import Path

from packaging_support import BUILD, build_library, call

from support import harness


class WithoutLibcChecks(unittest.TestCase):
    library: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = BUILD / "without_libc_checks"
        build_library(folder, "-DFREESTONE_CHECK_LIBC=OFF", targets=("freestone_hardened",))
        cls.library = folder / "libfreestone-hardened.so"

    def under_the_library(self, *command: str | Path) -> None:
        library = str(self.library)
        call(*command, env=harness.environment([], {"LD_PRELOAD": library, "FREESTONE_EXPECT_LIBRARY": library}))

    def test_exports_no_memory_function(self) -> None:
        def exported(library: Path) -> set[str]:
            return {line.split()[-1].split("@")[0] for line in call("nm", "-D", "--defined-only", library).splitlines()}

        with_checks = exported(BUILD / "libfreestone-hardened.so")
        left_out = with_checks - exported(self.library)
        self.assertEqual(exported(self.library) - with_checks, set())
        names = {"memcpy", "memmove", "mempcpy", "memset"}
        names |= {"strcpy", "stpcpy", "strncpy", "stpncpy", "strcat", "strncat"}
        names |= {"explicit_bzero", "wmemcpy", "wmemmove", "wmemset", "read", "pread", "pread64", "recv", "recvfrom"}
        names |= {"fread", "fread_unlocked", "getcwd", "readlink"}
        names |= {f"__{name}_chk" for name in names}
        self.assertEqual(left_out, names | {"bcopy", "bzero", "fgets", "fgets_unlocked", "memccpy"})

    def test_keeps_the_promises_of_every_call(self) -> None:
        for program in ("abi_c_names_test", "abi_cxx_operators_test", "abi_bad_pointer_test"):
            with self.subTest(program):
                self.under_the_library(BUILD / "allocator" / "tests" / program, "--gtest_brief=1")

    def test_sees_attacks_that_need_no_such_check(self) -> None:
        attacks = BUILD / "allocator" / "tests" / "enumerated"
        for kind in ("double free", "write after free, seen", "write before the start", "wrong"):
            with self.subTest(kind):
                self.under_the_library(attacks, "--rounds", "6", "--seed", "13", "--kind", kind, "--expect", "1")


if __name__ == "__main__":
    harness.main()
