"""Rust: the crate's own tests with and without the C names, its example, and jemalloc's interface on this library."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path

from packaging_support import BUILD, CLIENTS, ROOT, answers, call

from support import harness

CRATE = ROOT / "rust"
ENVIRONMENT = harness.environment([], {"CARGO_TARGET_DIR": str(BUILD / "rust"), "CARGO_TERM_COLOR": "never"})
# It is served if its own blocks and those of C are counted.
PROGRAM = {
    "app/Cargo.toml": """
[package]
name = "app"
version = "0.0.0"
edition = "2021"
[dependencies]
freestone = { path = "../CRATE", features = ["override"] }
[workspace]
""",
    "app/src/main.rs": """
#[global_allocator]
static ALLOCATOR: freestone::Freestone = freestone::Freestone;
extern "C" {
    fn strdup(text: *const std::ffi::c_char) -> *mut std::ffi::c_char;
}
fn main() {
    let bytes = vec![b'x'; 3 << 20];
    let text = std::ffi::CString::new(bytes).expect("no zero");
    let copy = unsafe { strdup(text.as_ptr()) };
    assert!(!copy.is_null() && freestone::stats().live_bytes >= 6 << 20);
    println!("{} serves", freestone::version());
}
""",
}


def registry_answers(folder: Path = CRATE) -> bool:
    """Whether cargo has, or can get, what a crate is built with."""
    try:
        call("cargo", "fetch", "--manifest-path", folder / "Cargo.toml", env=ENVIRONMENT)
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
        self.assert_tested(
            self.cargo("test", "--tests", "--features", "override,hardened", FREESTONE_LIB_DIR=str(BUILD))
        )

    def test_the_example_runs(self) -> None:
        printed = self.cargo("run", "--package", "freestone-example")
        self.assertRegex(
            printed, r"(?s)index built +live +(\d\d)\.\d.*100000 words, 950000 places.*after a trim +live +0\.\d"
        )

    def test_the_package_holds_every_source_that_it_compiles(self) -> None:
        listed = set(self.cargo("package", "--list", "--allow-dirty").split())
        sources = {str(path.relative_to(CRATE)) for path in (CRATE / "allocator" / "src").rglob("*.*")}
        self.assertEqual((sources | {"LICENSE", "README.md", "Cargo.lock"}) - listed, set())

    def test_a_program_is_built_from_the_package_alone(self) -> None:
        made = BUILD / "rust" / "package"
        for earlier in made.glob("freestone-*.crate"):
            earlier.unlink()
        self.cargo("package", "--no-verify", "--allow-dirty")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            call("tar", "-C", folder, "-xzf", *made.glob("freestone-*.crate"))
            (unpacked,) = folder.glob("freestone-*")
            self.assertEqual([path for path in unpacked.rglob("*") if path.is_symlink()], [])
            for project, text in PROGRAM.items():
                (folder / project).parent.mkdir(parents=True, exist_ok=True)
                (folder / project).write_text(text.replace("CRATE", unpacked.name))
            env = {**ENVIRONMENT, "CARGO_TARGET_DIR": str(folder / "target")}
            call("cargo", "build", "--quiet", "--manifest-path", folder / "app" / "Cargo.toml", env=env)
            version = unpacked.name.removeprefix("freestone-")
            self.assertEqual(call(folder / "target" / "debug" / "app"), f"{version} serves\n")


@unittest.skipUnless(shutil.which("cargo"), "cargo is not installed")
class JemallocInterface(unittest.TestCase):
    def test_it_finds_its_figures_here(self) -> None:
        folder = BUILD / "jemalloc_ctl"  # cargo writes a lock file beside the manifest
        shutil.copytree(CLIENTS / "jemalloc_ctl", folder, dirs_exist_ok=True)
        if not registry_answers(folder):
            self.skipTest("the crate `tikv-jemalloc-ctl` cannot be had")
        env = {**ENVIRONMENT, "JEMALLOC_OVERRIDE": str(BUILD / "libfreestone.so"), "LD_LIBRARY_PATH": str(BUILD)}
        found = answers("cargo", "run", "--quiet", "--manifest-path", folder / "Cargo.toml", env=env)
        self.assertEqual(found["unchanged"], "true", "figures stand still until the epoch advances")
        grown = int(found["grown"])
        self.assertTrue(
            10_000_000 <= grown <= 11_250_000, f"10,000,000 bytes at most an eighth more than asked for: {grown}"
        )
        for name in ("active", "resident", "mapped"):
            self.assertGreaterEqual(int(found[name]), grown, name)
        self.assertGreater(int(found["metadata"]), 0)
        self.assertRegex(found["version"], r"^freestone \d")
        self.assertEqual((found["narenas"], found["abort"], found["background_thread"]), ("1", "false", "true"))


if __name__ == "__main__":
    os.environ.pop("RUSTFLAGS", None)
    harness.main()
