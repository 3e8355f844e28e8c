"""The Debian packages that cpack makes: what they say, what they hold, and that what they hold works once unpacked or installed.

They are installed for real only by root in an automated run (CI or FREESTONE_TEST_INSTALL in the environment), and removed again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from packaging_support import BUILD, CC, CLIENTS, ROOT, answers, call, with_variable

from support import harness

PACKAGES = ("libfreestone1", "libfreestone-dev", "freestone-tools")
MAY_INSTALL = os.geteuid() == 0 and bool(os.environ.get("CI") or os.environ.get("FREESTONE_TEST_INSTALL"))
# Where a command needs packages, the installed tool makes an environment of its own, by pip; here the repository's serves.
PYTHON = ROOT / ".venv" / "bin" / "python"


def is_installed(package: str) -> bool:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True, check=False)
    return done.stdout == "installed"


@unittest.skipUnless(shutil.which("dpkg-shlibdeps") and shutil.which("file"), "no dpkg-shlibdeps or no file (packages dpkg-dev and file)")
class Packages(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]
    files: dict[str, Path]
    root: Path
    libdir: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        made = Path(cls.folder.name) / "made"
        call("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", made)
        cls.files = {path.name.split("_")[0]: path for path in made.glob("*.deb")}
        cls.root = Path(cls.folder.name) / "root"
        for file in cls.files.values():
            call("dpkg-deb", "-x", file, cls.root)
        cls.libdir = next(cls.root.glob("usr/lib/**/libfreestone.so.1")).parent

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def field(self, package: str, name: str) -> str:
        return call("dpkg-deb", "-f", self.files[package], name).strip()

    def held(self, package: str) -> set[str]:
        rows = call("dpkg-deb", "-c", self.files[package]).splitlines()
        return {row.split()[5].removeprefix("./") for row in rows if not row.startswith("d")}

    def use_tool(self, command: Path, env: dict[str, str]) -> None:
        self.assertEqual(Path(call(command, "lib", env=env).strip()).name, "libfreestone.so.1")
        printed = call(command, "run", "--", "grep", "-m1", "-o", "/.*libfreestone.*", "/proc/self/maps", env=env)
        self.assertEqual(Path(printed.strip()), Path(call(command, "lib", env=env).strip()).resolve())

    def test_there_are_three_packages_of_one_version(self) -> None:
        self.assertEqual(sorted(self.files), sorted(PACKAGES))
        self.assertEqual(len({self.field(package, "Version") for package in PACKAGES}), 1)
        version = self.field("libfreestone1", "Version")
        for package in ("libfreestone-dev", "freestone-tools"):
            self.assertIn(f"libfreestone1 (= {version})", self.field(package, "Depends"))
        self.assertRegex(self.field("libfreestone1", "Depends"), r"^libc6 \(>= [\d.]+\)$")
        for package in PACKAGES:
            self.assertEqual(self.field(package, "Architecture"), call("dpkg", "--print-architecture").strip())
            self.assertIn("memory allocator", self.field(package, "Description"))

    def test_programs_need_the_first_package_only(self) -> None:
        names = {Path(path).name for path in self.held("libfreestone1") if "/doc/" not in path}
        self.assertEqual(names, {"libfreestone.so.1", "libfreestone-hardened.so.1"})
        names = {Path(path).name for path in self.held("libfreestone-dev")}
        self.assertLessEqual({"libfreestone.so", "libfreestone.a", "freestone.o", "freestone.h", "freestone.hpp", "freestone.pc"}, names)
        self.assertEqual(self.held("libfreestone1") & self.held("libfreestone-dev"), set())
        tools = self.held("freestone-tools")
        self.assertFalse([path for path in tools if "__pycache__" in path])
        self.assertLessEqual({"freestone", "freestone-workload", "requirements.txt"}, {Path(path).name for path in tools})

    def test_every_package_has_its_licence_and_changes(self) -> None:
        for package in PACKAGES:
            for name in ("copyright", "changelog.Debian.gz"):
                self.assertIn(f"usr/share/doc/{package}/{name}", self.held(package))

    def test_a_program_builds_and_runs_from_the_unpacked_packages(self) -> None:
        env = with_variable("PKG_CONFIG_PATH", self.libdir / "pkgconfig")
        flags = call("pkg-config", "--cflags", "--libs", "freestone", env=env).split()
        program = Path(self.folder.name) / "served"
        call(CC, "-o", program, CLIENTS / "served.c", *flags)
        found = answers(program, env=with_variable("LD_LIBRARY_PATH", self.libdir))
        self.assertEqual(Path(found["malloc"]).resolve(), self.libdir / "libfreestone.so.1")

    def test_the_command_runs_from_the_unpacked_packages(self) -> None:
        command = self.root / "usr" / "bin" / "freestone"
        env = harness.environment([], {"HOME": self.folder.name})
        self.use_tool(command, env)
        if not PYTHON.exists():
            self.skipTest(f"{PYTHON} does not exist")
        env["FREESTONE_PYTHON"] = str(PYTHON)
        self.assertRegex(call(command, "peers", env=env), rf"(?m)^freestone +{self.field('libfreestone1', 'Version').split('-')[0]}")

    @unittest.skipUnless(MAY_INSTALL, "installs packages: only as root with CI or FREESTONE_TEST_INSTALL in the environment")
    def test_the_packages_install_work_and_go(self) -> None:
        if any(is_installed(package) for package in PACKAGES):
            self.skipTest("a package of this name is installed already")
        # What they depend on is python3-venv at most, which this use does without.
        call("dpkg", "--install", "--force-depends", *self.files.values())
        try:
            program = Path(self.folder.name) / "installed"
            call(CC, "-o", program, CLIENTS / "served.c", *call("pkg-config", "--cflags", "--libs", "freestone").split())
            self.assertEqual(Path(answers(program)["malloc"]).resolve(), Path("/") / self.libdir.relative_to(self.root) / "libfreestone.so.1")
            self.use_tool(Path("/usr/bin/freestone"), harness.environment([], {"HOME": self.folder.name}))
        finally:
            call("dpkg", "--purge", *reversed(PACKAGES))
        self.assertFalse(Path("/usr/share/freestone").exists() or Path("/usr/include/freestone").exists())


if __name__ == "__main__":
    harness.main()
