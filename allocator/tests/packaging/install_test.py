"""`cmake --install`, and what a user then builds with it, in every form of the library.

C programs find it by pkg-config, C++ programs by find_package.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path

from packaging_support import (
    BUILD, CC, CLIENTS, CXX, EXAMPLES, ROOT, InFolder, answers, build, call, with_variable,
)  # fmt: skip

from support import harness


class Installed(InFolder):
    """An installed tree, moved after the installation: nothing in it may name the folder it was made for."""

    prefix: Path
    libdir: Path
    work: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        call("cmake", "--install", BUILD, "--prefix", cls.folder / "first")
        cls.prefix = cls.folder / "prefix"
        shutil.move(cls.folder / "first", cls.prefix)
        cls.libdir = next(cls.prefix.glob("lib*/**/libfreestone.so")).parent
        cls.work = cls.folder / "work"
        cls.work.mkdir()

    def pkg_config(self, *arguments: str) -> list[str]:
        env = with_variable("PKG_CONFIG_PATH", self.libdir / "pkgconfig")
        return call("pkg-config", *arguments, "freestone", env=env).split()

    def c_client(self, source: str, *link: str) -> Path:
        program = self.work / f"{Path(source).stem}-{len(list(self.work.iterdir()))}"
        call(CC, "-Wl,--as-needed", "-o", program, CLIENTS / source, *self.pkg_config("--cflags"), *link)
        return program

    def build_project(self, source: Path, folder: Path, *options: str) -> None:
        compilers = (f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}")
        build(source, folder, f"-DCMAKE_PREFIX_PATH={self.prefix}", *compilers, *options)

    def assert_served(self, found: dict[str, str], owner: Path) -> None:
        for name in {"malloc", "_Znwm"} & found.keys():
            self.assertEqual(Path(found[name]).resolve(), owner.resolve())

    def test_a_c_program_links_by_pkg_config(self) -> None:
        env = with_variable("LD_LIBRARY_PATH", self.libdir)
        for source in ("served.c", "indirect.c"):
            found = answers(self.c_client(source, *self.pkg_config("--libs")), env=env)
            self.assert_served(found, self.libdir / "libfreestone.so.1")
            (version,) = self.pkg_config("--modversion")
            self.assertEqual(found.get("version", version), version)

    def test_a_c_program_links_the_object_and_the_archive_named_by_pkg_config(self) -> None:
        for variable in ("object", "archive"):
            program = self.c_client("served.c", *self.pkg_config(f"--variable={variable}"))
            self.assert_served(answers(program), program)

    def test_the_library_named_by_pkg_config_can_be_preloaded(self) -> None:
        library = Path(self.pkg_config("--variable=preload")[0])
        program = self.work / "plain"
        call(CC, "-o", program, CLIENTS / "indirect.c", "-ldl")
        found = answers(program, env=with_variable("LD_PRELOAD", library))
        self.assert_served(found, library)

    def test_a_fully_static_program_links_the_object(self) -> None:
        program = self.c_client("served.c", "-static", *self.pkg_config("--variable=object"), "-w")
        self.assertIn("version", answers(program))

    def test_cxx_programs_link_the_object_first_on_the_line_and_with_lto(self) -> None:
        # They share COMDAT sections with the object: DW.ref.__gxx_personality_v0 is one.
        kinds: list[list[str]] = [[], ["-static"]]
        if "clang" not in call(CXX, "--version"):  # clang needs a plug-in or another linker for LTO
            kinds += [["-flto"], ["-static", "-flto"]]
        for number, options in enumerate(kinds):
            with self.subTest(options=options):
                program = self.work / f"throws-{number}"
                (library,) = self.pkg_config("--variable=object")
                command = (CXX, "-O1", "-w", *options, "-Wl,--undefined=_ZSt17__throw_bad_allocv", "-o", program)
                call(*command, library, CLIENTS / "throws.cpp")
                self.assertEqual(call(program), "caught\n")

    def test_cxx_programs_link_every_form_by_find_package(self) -> None:
        folder = self.work / "cmake"
        self.build_project(CLIENTS, folder)
        shared = {"freestone": "libfreestone.so.1", "hardened": "libfreestone-hardened.so.1"}
        for form in ("freestone", "static", "object", "hardened", "hardened_static", "hardened_object"):
            for kind in ("served", "indirect"):
                with self.subTest(form=form, kind=kind):
                    program = folder / f"{kind}-{form}"
                    self.assert_served(answers(program), self.libdir / shared[form] if form in shared else program)
        for form in ("static", "object", "hardened_static", "hardened_object"):
            with self.subTest(form=form, kind="throws, linked with -static"):
                self.assertEqual(call(folder / f"throws-{form}"), "caught\n")

    def test_the_c_example_builds_by_its_makefile(self) -> None:
        work = self.work / "c"
        shutil.copytree(EXAMPLES / "c", work)
        env = with_variable("PKG_CONFIG_PATH", self.libdir / "pkgconfig")
        call("make", "-C", work, f"CC={CC}", "CFLAGS=-O2 -Wall -Wextra -Werror", env=env)
        printed = call(work / "measure", env=with_variable("LD_LIBRARY_PATH", self.libdir))
        told = r"(?s)active.*all allocated +live +9[5-9]\.\d.*after a trim +live +0\.\d.*Cannot allocate memory"
        self.assertRegex(printed, told)

    def test_the_cxx_example_builds_by_find_package(self) -> None:
        folder = self.work / "cxx"
        self.build_project(EXAMPLES / "cpp", folder, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        told = r"(?s)1000 distinct.*left 0.*5000 distinct.*left 0.*100000 numbers: held.*10000000 numbers: too large"
        self.assertRegex(call(folder / "requests"), told)

    def test_the_installed_files_carry_no_debug_information(self) -> None:
        for name in ("libfreestone.so.1", "libfreestone-hardened.so.1", "libfreestone.a", "freestone.o"):
            self.assertNotIn(".debug_info", call("readelf", "-SW", self.libdir / name), name)

    def test_the_soname_is_the_file_name(self) -> None:
        soname = re.search(r"SONAME.*\[(.*)\]", call("readelf", "-dW", self.libdir / "libfreestone.so"))
        self.assertEqual(soname and soname[1], "libfreestone.so.1")

    def test_the_object_defines_nothing_global_but_what_the_library_exports(self) -> None:
        def names(*arguments: str | Path) -> set[str]:
            return {line.split()[-1] for line in call("nm", "--defined-only", *arguments).splitlines()}

        # Only a preloaded library stands between a program and libc's dlopen; see COMPATIBILITY.md on RTLD_DEEPBIND.
        exported = names("-D", self.libdir / "libfreestone.so") - {"dlopen", "dlmopen"}
        self.assertEqual(names("--extern-only", self.libdir / "freestone.o"), exported)

    def test_the_headers_compile_alone_without_a_warning(self) -> None:
        for header in sorted((self.prefix / "include" / "freestone").iterdir()):
            language = (CC, "-x", "c", "-std=c11") if header.suffix == ".h" else (CXX, "-x", "c++", "-std=c++17")
            warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only")
            call(*language, *warnings, "-I", self.prefix / "include", "-include", header, "/dev/null")


IN_A_MACHINE_OF_ITS_OWN = """
mount -t tmpfs none /mnt && cd /mnt && mkdir etc etc.work local local.work
mount -t overlay none -o lowerdir=/etc,upperdir=etc,workdir=etc.work /etc
mount -t overlay none -o lowerdir=/usr/local,upperdir=local,workdir=local.work /usr/local
exec "$@"
"""


@unittest.skipUnless(BUILD == ROOT / "build" / "release", "the entry command installs the release build")
class EntryCommand(unittest.TestCase):
    """`freestone install`: what it installs serves malloc, or it says in one line what stands in the way."""

    COMMAND = ROOT / "freestone"

    def install(self, *words: str | Path, within: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        line = [*within, str(self.COMMAND), "install", *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    def test_in_a_folder_of_its_own_the_library_is_preloaded_by_its_path_and_all_of_it_goes_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            used, made = Path(folder, "used"), Path(folder, "made/new")
            (used / "lib/empty").mkdir(parents=True)
            (used / "lib/other").touch()
            before = sorted(Path(folder).rglob("*"))
            for prefix in (used, made, used):  # an installation over another, too
                done = self.install("--prefix", prefix)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
                self.assertIn(f"log: {ROOT}/build/install.log\n", done.stderr)
                library = next(prefix.glob("lib*/**/libfreestone.so.1"))
                self.assertIn(f"proven: LD_PRELOAD={library} serves malloc", done.stdout)
                self.assertIn(f"undo: {self.COMMAND} uninstall --prefix {prefix}\n", done.stdout)
            there = sorted(made.rglob("*"))
            python = Path(folder, "python")  # packages of the system's that are new enough serve; else an environment
            call("python3", "-I", "-m", "venv", "--without-pip", python)
            for at, said in {"99.0": r"^freestone \d", "0.1": r"/dev/null/\S+ cannot .*; XDG_CACHE_HOME names"}.items():
                for name in re.findall(r'^    "(\w+)>=', (ROOT / "lab/pyproject.toml").read_text(), re.MULTILINE):
                    about = next(python.glob("lib/python*/site-packages")) / f"{name}-1.dist-info" / "METADATA"
                    about.parent.mkdir(exist_ok=True)
                    about.write_text(f"Name: {name}\nVersion: {at}\n")
                env = {**os.environ, "PATH": f"{python}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": "/dev/null"}
                line = [made / "bin/freestone", "--with-packages=runtime", "--version"]
                done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
                self.assertRegex(done.stdout + done.stderr, said)
            shutil.rmtree(python)
            call(self.COMMAND, "uninstall", "--prefix", used)
            self.assertEqual(there, sorted(made.rglob("*")))
            call(made / "bin/freestone", "uninstall")
            self.assertEqual(before, sorted(Path(folder).rglob("*")))
            again = subprocess.run([self.COMMAND, "uninstall", f"--prefix={used}"], capture_output=True, text=True)
            self.assertEqual((again.returncode, again.stderr.count("\n")), (2, 1), again.stderr)

    def test_where_nothing_can_be_preloaded_from_nothing_is_installed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a blank", "a:colon"):
                done = self.install("--prefix", f"{folder}/{name}")
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))
                self.assertIn("cannot preload a path with blanks or colons; name another --prefix", done.stderr)
            self.assertEqual(list(Path(folder).iterdir()), [])

    @unittest.skipUnless(os.geteuid() == 0, "only root installs for the system")
    def test_for_the_system_its_name_is_enough(self) -> None:
        done = self.install(within=["unshare", "--mount", "sh", "-ec", IN_A_MACHINE_OF_ITS_OWN, "sh"])
        if "overlay" in done.stderr or "unshare" in done.stderr:
            self.skipTest(done.stderr)
        self.assertIn("proven: LD_PRELOAD=libfreestone.so.1 serves malloc", done.stdout, done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root may become nobody")
    def test_without_rights_it_says_so_before_it_builds(self) -> None:
        reads_all = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]  # root's clone, too
        done = self.install(within=["setpriv", "--reuid=65534", "--clear-groups", *reads_all])
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn("/usr/local cannot be written by nobody", done.stderr)

    def test_what_is_not_all_built_is_not_half_installed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            call("cmake", "-G", "Ninja", "-S", ROOT, "-B", f"{folder}/build", "-DCMAKE_BUILD_TYPE=Release")
            line = ["cmake", "--install", f"{folder}/build", "--prefix", f"{folder}/prefix"]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            self.assertIn("not all libraries are built; first: cmake --build", done.stderr)
            self.assertFalse(Path(folder, "prefix").exists())


if __name__ == "__main__":
    harness.main()
