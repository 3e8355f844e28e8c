"""What `./freestone package` makes: what each package says and holds, and that it works where it was unpacked.

clean_root_test.py installs and removes them.
"""

import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from packaging_support import CC, CLIENTS, ROOT, InFolder, answers, call, make_packages, with_variable

from support import harness, versions

PACKAGES = ("libfreestone1", "libfreestone-dev", "freestone-tools")
PROGRAMS = {"launch", "probe", "freestone-workload", "freestone-record", "freestone-replay", "libfreestone-record.so"}
LIBRARIES = {"libfreestone.so.1", "libfreestone-hardened.so.1"}
# With the headers of glibc 2.38, programs ask for its functions: a release is made where they are older.
FOR_THIS_MACHINE = PROGRAMS if versions.of_glibc() >= (2, 38) else set()
# Where a command needs packages, the installed tool makes an environment of its own; here the repository's serves.
PYTHON = ROOT / ".venv" / "bin" / "python"


def is_loadable(path: Path) -> bool:
    """Whether it is a program or a shared library."""
    if not path.is_file() or path.is_symlink():
        return False
    head = path.read_bytes()[:17]
    return head[:4] == b"\x7fELF" and head[16] != 1  # 1: a relocatable object


def use_tool(case: unittest.TestCase, env: dict[str, str], *command: str | Path) -> None:
    """What a user does first: asks for version and library, runs a program, records one, replays its trace."""
    case.assertRegex(call(*command, "--version", env=env), r"^freestone \d+\.\d+\.\d+(-dev)?\n$")
    for flags, name in (((), "libfreestone.so"), (("--hardened",), "libfreestone-hardened.so")):
        library = Path(call(*command, "lib", *flags, env=env).strip())
        case.assertEqual(library.name.removesuffix(".1"), name)
        printed = call(
            *command, "run", *flags, "--", "grep", "-m1", "-o", "/.*libfreestone.*", "/proc/self/maps", env=env
        )
        case.assertEqual(Path(printed.strip()), library.resolve())
    trace, plan = Path(env["HOME"]) / "ls.fst", Path(env["HOME"]) / "ls.plan"
    call(*command, "record", "-o", trace, "--", "ls", "/", env=env)
    replayer = next(library.resolve().parent.rglob("freestone-replay"))
    call(replayer, "plan", trace, plan, env=env)
    case.assertIn('"calls"', call(replayer, "run", plan, env=env))
    refused = subprocess.run([*map(str, command), "test"], env=env, capture_output=True, text=True, check=False)
    case.assertEqual((refused.returncode, "source tree" in refused.stderr), (2, True), refused.stderr)


class Made(InFolder):
    made: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.made = cls.folder / "made"

    def home(self) -> dict[str, str]:
        """An environment with a home of its own, and no compiler."""
        home = tempfile.TemporaryDirectory(dir=self.folder)
        self.addCleanup(home.cleanup)
        return harness.environment([], {"HOME": home.name, "CC": "no-compiler"})


@unittest.skipUnless(
    shutil.which("dpkg-shlibdeps") and shutil.which("file"), "no dpkg-shlibdeps or no file (packages dpkg-dev and file)"
)
class Debian(Made):
    files: dict[str, Path]
    root: Path
    libdir: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        make_packages(cls.made, "deb")
        cls.files = {path.name.split("_")[0]: path for path in cls.made.glob("*.deb")}
        cls.root = cls.folder / "root"
        for file in cls.files.values():
            call("dpkg-deb", "-x", file, cls.root)
        cls.libdir = next(cls.root.glob("usr/lib/**/libfreestone.so.1")).parent

    def field(self, package: str, name: str) -> str:
        return call("dpkg-deb", "-f", self.files[package], name).strip()

    def held(self, package: str) -> set[str]:
        rows = call("dpkg-deb", "-c", self.files[package]).splitlines()
        return {row.split()[5].removeprefix("./") for row in rows if not row.startswith("d")}

    def test_there_are_three_packages_of_one_version(self) -> None:
        self.assertEqual(sorted(self.files), sorted(PACKAGES))
        self.assertEqual(len({self.field(package, "Version") for package in PACKAGES}), 1)
        version = self.field("libfreestone1", "Version")
        for package in ("libfreestone-dev", "freestone-tools"):
            self.assertIn(f"libfreestone1 (= {version})", self.field(package, "Depends"))
        self.assertEqual(self.field("libfreestone1", "Depends"), "libc6 (>= 2.28)")
        self.assertIn("libzstd1", self.field("freestone-tools", "Depends"))
        for package in PACKAGES:
            self.assertEqual(self.field(package, "Architecture"), call("dpkg", "--print-architecture").strip())
            self.assertIn("memory allocator", self.field(package, "Description"))

    def test_programs_need_the_first_package_only(self) -> None:
        names = {Path(path).name for path in self.held("libfreestone1") if "/doc/" not in path}
        self.assertEqual(names, LIBRARIES)
        names = {Path(path).name for path in self.held("libfreestone-dev")}
        self.assertLessEqual(
            {"libfreestone.so", "libfreestone.a", "freestone.o", "freestone.h", "freestone.hpp", "freestone.pc"}, names
        )
        self.assertEqual(self.held("libfreestone1") & self.held("libfreestone-dev"), set())
        tools = self.held("freestone-tools")
        self.assertFalse([path for path in tools if "__pycache__" in path])
        self.assertLessEqual(
            {"freestone", "requirements.txt", "options.def", *PROGRAMS}, {Path(path).name for path in tools}
        )

    def test_every_package_has_its_licence_and_changes(self) -> None:
        for package in PACKAGES:
            for name in ("copyright", "changelog.Debian.gz"):
                self.assertIn(f"usr/share/doc/{package}/{name}", self.held(package))

    def test_pages_and_completions_lie_where_debian_looks(self) -> None:
        tools = self.held("freestone-tools")
        for place in ("man/man1/freestone.1.gz", "man/man1/freestone-compare.1.gz",
                      "bash-completion/completions/freestone", "zsh/vendor-completions/_freestone",
                      "fish/vendor_completions.d/freestone.fish"):  # fmt: skip
            self.assertIn(f"usr/share/{place}", tools)
        self.assertFalse([path for path in tools if path.endswith(".1")], "Debian wants every manual page compressed")

    def test_every_file_runs_with_glibc_2_28(self) -> None:
        asked = {path.name: versions.above_ceiling(path) for path in self.root.rglob("*") if is_loadable(path)}
        self.assertEqual(asked.keys(), PROGRAMS | LIBRARIES)
        self.assertEqual({name for name in asked if asked[name]} - FOR_THIS_MACHINE, set(), asked)

    def test_a_program_builds_and_runs_from_the_unpacked_packages(self) -> None:
        env = with_variable("PKG_CONFIG_PATH", self.libdir / "pkgconfig")
        flags = call("pkg-config", "--cflags", "--libs", "freestone", env=env).split()
        program = self.folder / "served"
        call(CC, "-o", program, CLIENTS / "served.c", *flags)
        found = answers(program, env=with_variable("LD_LIBRARY_PATH", self.libdir))
        self.assertEqual(Path(found["malloc"]).resolve(), self.libdir / "libfreestone.so.1")

    def test_the_command_runs_from_the_unpacked_packages(self) -> None:
        command, env = self.root / "usr" / "bin" / "freestone", self.home()
        use_tool(self, env, command)
        if not PYTHON.exists():
            self.skipTest(f"{PYTHON} does not exist")
        env["FREESTONE_PYTHON"] = str(PYTHON)
        version = self.field("libfreestone1", "Version").split("-")[0].replace("~", "-")
        self.assertRegex(call(command, "peers", env=env), rf"(?m)^freestone +{version} ")


class Elsewhere(Made):
    """The packages for systems that are not Debian's."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        make_packages(cls.made, "tar", "wheel")

    def test_the_archive_works_wherever_it_is_unpacked(self) -> None:
        archive = next(self.made.glob("*.tar.gz"))
        call("tar", "-C", self.folder, "-xzf", archive)
        root = self.folder / archive.name.removesuffix(".tar.gz")
        moved = root.rename(root.with_name("moved"))
        for notice in ("LICENSE", "README.md", "CHANGELOG.md", "include/freestone/freestone.h"):
            self.assertTrue((moved / notice).is_file(), notice)
        use_tool(self, self.home(), moved / "bin" / "freestone")

    def test_the_container_file_adds_the_archive_beside_it(self) -> None:
        lines = next(self.made.glob("*.Containerfile")).read_text().splitlines()
        added = [line.split()[1] for line in lines if line.startswith("ADD ")]
        self.assertEqual(added, [path.name for path in self.made.glob("*.tar.gz")])

    def test_the_wheel_works_from_any_folder(self) -> None:
        place = self.folder / "site"
        with zipfile.ZipFile(next(self.made.glob("*.whl"))) as wheel:
            wheel.extractall(place)
            for entry in wheel.infolist():
                (place / entry.filename).chmod(entry.external_attr >> 16)
            names = wheel.namelist()
        self.assertEqual(PROGRAMS - {Path(name).name for name in names}, set())
        asked = {path.name: versions.above_ceiling(path) for path in place.rglob("*") if is_loadable(path)}
        self.assertEqual({name for name in asked if asked[name]} - FOR_THIS_MACHINE, set(), asked)
        self.assertIn("manylinux_2_28", next(place.glob("*.dist-info/WHEEL")).read_text())
        self.assertIn("freestone-lab", (next(place.glob("*.dist-info")) / "METADATA").read_text())
        env = {**self.home(), "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        use_tool(self, env, sys.executable, "-m", "freestone_lab.cli")

    def test_the_same_build_gives_the_same_archive_and_wheel(self) -> None:
        again = self.folder / "again"
        make_packages(again, "wheel")
        for path in again.iterdir():
            self.assertEqual(path.read_bytes(), (self.made / path.name).read_bytes(), path.name)


if __name__ == "__main__":
    harness.main()
