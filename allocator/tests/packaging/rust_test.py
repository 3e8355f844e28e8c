"""The Rust crate: its own tests, with and without the C names, and the example that uses it."""

from __future__ import annotations

import os
import shutil
import unittest

from packaging_support import BUILD, ROOT, call

from support import harness

CRATE = ROOT / "rust"
ENVIRONMENT = harness.environment([], {"CARGO_TARGET_DIR": str(BUILD / "rust"), "CARGO_TERM_COLOR": "never"})


def registry_answers() -> bool:
    """Whether cargo has, or can get, what the crate is built with."""
    try:
        call("cargo", "fetch", "--manifest-path", CRATE / "Cargo.toml", env=ENVIRONMENT)
    except AssertionError as error:
        print(error)
        return False
    return True


@unittest.skipUnless(shutil.which("cargo"), "cargo is not installed")
@unittest.skipUnless(shutil.which("cargo") and registry_answers(), "the crate `cc` cannot be had")
class Crate(unittest.TestCase):
    def cargo(self, *arguments: str, **variables: str) -> str:
        command = ["cargo", *arguments, "--quiet", "--manifest-path", str(CRATE / "Cargo.toml")]
        return call(*command, env={**ENVIRONMENT, **variables})

    def assert_tested(self, printed: str) -> None:
        self.assertRegex(printed, r"test result: ok\. [1-9]\d* passed")

    def test_its_tests_pass_with_freestone_as_the_global_allocator(self) -> None:
        self.assert_tested(self.cargo("test"))

    def test_its_tests_pass_with_the_installed_library_in_place_of_malloc(self) -> None:
        self.assert_tested(self.cargo("test", "--tests", "--features", "override", FREESTONE_LIB_DIR=str(BUILD)))

    def test_its_tests_pass_with_the_hardened_library_in_place_of_malloc(self) -> None:
        self.assert_tested(self.cargo("test", "--tests", "--features", "override,hardened", FREESTONE_LIB_DIR=str(BUILD)))

    def test_the_example_runs(self) -> None:
        printed = self.cargo("run", "--package", "freestone-example")
        self.assertRegex(printed, r"(?s)index built +live +(\d\d)\.\d.*100000 words, 950000 places.*after a trim +live +0\.\d")

    def test_the_package_holds_every_source_that_it_compiles(self) -> None:
        listed = set(self.cargo("package", "--list", "--allow-dirty").split())
        sources = {str(path.relative_to(CRATE)) for path in (CRATE / "allocator" / "src").rglob("*.*")}
        self.assertEqual(sources - listed, set())


if __name__ == "__main__":
    os.environ.pop("RUSTFLAGS", None)
    harness.main()
