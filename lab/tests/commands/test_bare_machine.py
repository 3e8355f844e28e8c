"""What works on a machine that has installed nothing: no package of Python's, no pip, no network, even no Python."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_tools import needs_library

from freestone_lab.commands import environment, options
from freestone_lab.core import paths
from freestone_lab.engine import preparation
from freestone_lab.host import own_tests
from freestone_lab.measure import native
from freestone_lab.peers import discover, packages
from freestone_lab.workloads import defaults

SHELL_TOOLS = ("sh", "cat", "cksum", "dirname", "grep", "cut", "tr", "readlink", "sed", "uname", "id")
COMPILER_TOOLS = ("cc", "gcc", "as", "ld", "addr2line", "c++filt")
PYTHONS = "in /usr/bin/python3 python3 "  # where the entry command looks first


@dataclass(frozen=True)
class Machine:
    """A copy of what the entry command needs, with a PATH of its own."""

    root: Path
    tools: Path

    def freestone(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.tools), "HOME": str(self.root), "LC_ALL": "C.UTF-8", **settings}
        command = [str(self.root / "freestone"), *words]
        return subprocess.run(command, env=env, cwd=self.root, capture_output=True, text=True)


def machine(folder: Path, python: str, *tools: str) -> Machine:
    root, programs = folder / "freestone", folder / "programs"
    root.mkdir(parents=True)
    programs.mkdir()
    for name in ("freestone", "CMakeLists.txt", "CMakePresets.json"):
        shutil.copy(paths.root() / name, root / name)
    script = root / "freestone"
    assert PYTHONS in script.read_text()
    script.write_text(script.read_text().replace(PYTHONS, f"in {python} "))
    shutil.copytree(paths.root() / "lab", root / "lab", ignore=shutil.ignore_patterns("__pycache__", "target", "tests"))
    (root / "build").symlink_to(paths.root() / "build")
    for tool in tools:
        found = shutil.which(tool)
        if found is not None:
            (programs / tool).symlink_to(os.path.realpath(found))
    return Machine(root, programs)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Has a Python, but nothing that could install a package."""
    made = machine(tmp_path_factory.mktemp("bare"), "python3", *SHELL_TOOLS, *COMPILER_TOOLS)
    python = made.tools / "python3"
    python.write_text(f"""#!/bin/sh
case " $* " in " -I -S "*) exec {os.path.realpath(sys.executable)} "$@" ;; esac
echo "started with packages in sight, or to install some: $*" >&2
exit 98
""")
    python.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def without_python(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return machine(tmp_path_factory.mktemp("without-python"), "", *SHELL_TOOLS)


@pytest.mark.parametrize("word", ["--help", "-h", "help", ""])
def test_help_needs_no_python(without_python: Machine, word: str) -> None:
    done = without_python.freestone(*filter(None, [word]))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == options.HELP.read_text()


def test_the_version_needs_no_python(without_python: Machine) -> None:
    done = without_python.freestone("--version")
    assert re.fullmatch(r"freestone \d+\.\d+\.\d+(-dev)?\n", done.stdout), done
    assert (done.returncode, done.stderr) == (0, "")


@needs_library
def test_lib_needs_no_python(without_python: Machine) -> None:
    for words, name in ((["lib"], "libfreestone.so"), (["lib", "--hardened"], "libfreestone-hardened.so")):
        done = without_python.freestone(*words)
        assert (done.returncode, done.stdout) == (0, f"{without_python.root}/build/release/{name}\n"), done.stderr


@needs_library
def test_in_a_folder_with_a_blank_a_link_is_preloaded_or_the_cause_is_told(tmp_path: Path) -> None:
    native.tool("probe")
    blank = machine(tmp_path / "a 'blank' \u00fc", "python3", *SHELL_TOOLS, *COMPILER_TOOLS, "ln", "mkdir")
    (blank.tools / "python3").symlink_to(os.path.realpath(sys.executable))
    cache = str(tmp_path / "cache")
    library = blank.freestone("lib", XDG_CACHE_HOME=cache).stdout.strip()
    assert " " not in library and Path(library).samefile(blank.root / "build/release/libfreestone.so")
    maps = blank.freestone("run", "--", "cat", "/proc/self/maps", XDG_CACHE_HOME=cache)
    assert "libfreestone" in maps.stdout, maps.stderr
    for words in (["lib"], ["run", "--", "cat"]):  # the home folder, and so the cache, has a blank, too
        done = blank.freestone(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "cannot preload a path with blanks or colons" in done.stderr


def test_a_missing_python_is_named(without_python: Machine) -> None:
    done = without_python.freestone("stats")
    assert done.returncode == 2
    lacks = "this machine lacks: python3; install them with its package manager and run this again"
    assert done.stderr == f"freestone: {lacks}\n"


def test_without_rights_one_message_names_what_all_steps_lack(tmp_path: Path) -> None:
    """No Python, no compiler, no allocator but glibc's, and a user who may not install anything."""
    nobody = machine(tmp_path, "", *SHELL_TOOLS, "sort")
    for name, does in {"apt-get": "exit 1", "id": "echo 1000", "dpkg-query": "exit 1"}.items():
        (nobody.tools / name).unlink(missing_ok=True)
        (nobody.tools / name).write_text(f"#!/bin/sh\n{does}\n")
        (nobody.tools / name).chmod(0o755)
    done = nobody.freestone("compare")
    typed = "freestone: these packages are missing; type: sudo apt-get update && sudo apt-get install -y "
    assert done.returncode == 2 and done.stderr.startswith(typed) and done.stderr.count("\n") == 1, done.stderr
    of_compare = [p.package for p in discover.PACKAGED] + [packages.PROGRAMS[p] for p in defaults.PROGRAMS]
    of_setup = {"python3", "python3-venv", "ca-certificates", *(packages.PROGRAMS[p] for p in preparation.BUILD_TOOLS)}
    assert set(done.stderr.removeprefix(typed).split()) == {*of_compare, *of_setup}
    asked = nobody.freestone("profile", "--", "ls").stderr.removeprefix(typed).split()
    assert asked == ["cmake", "g++", "gcc", "ninja-build", "python3"]


@pytest.mark.parametrize("name", options.COMMANDS)
def test_the_help_of_every_command_needs_no_package(bare: Machine, name: str) -> None:
    done = bare.freestone(*name.split(), "--help")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith(f"usage: freestone {name} ")


@needs_library
def test_run_needs_no_package(bare: Machine) -> None:
    native.tool("probe")
    for words in (["run"], ["run", "--hardened"]):
        done = bare.freestone(*words, "--", "cat", "/proc/self/maps")
        assert (done.returncode, done.stderr) == (0, "")
        assert "libfreestone" in done.stdout


@needs_library
def test_leaks_needs_no_package(bare: Machine) -> None:
    done = bare.freestone("leaks", "--error", "0", "--", "cat", "/dev/null")
    assert done.returncode == 0, done.stderr
    assert re.match(r"process \d+: ", done.stderr)


def test_stats_and_top_need_no_package(bare: Machine) -> None:
    metrics = bare.root / "metrics.prom"
    metrics.write_text('freestone_live_bytes{pid="7",program="server"} 4096\n# EOF\n')
    done = bare.freestone("stats", str(metrics))
    assert (done.returncode, done.stderr) == (0, "")
    assert "server process 7" in done.stdout
    done = bare.freestone("top", "999999999")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"freestone: .*999999999.*\n", done.stderr)


def test_the_tests_start_without_a_package(bare: Machine) -> None:
    done = bare.freestone("test", "nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("freestone: test: unknown part 'nosuch'; expected one of release, ")


def test_packages_that_went_away_are_installed_again(bare: Machine) -> None:
    """An upgrade of the system replaced the Python below .venv: its stamp says that the packages are there."""
    folder = bare.root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    with (bare.root / "lab/requirements.txt").open() as file:
        sums = subprocess.run(["cksum"], stdin=file, capture_output=True, text=True).stdout.strip()
    (folder / "runtime.stamp").write_text(f"{sums} {bare.root}\n")
    (bare.tools / "mkdir").symlink_to("/bin/mkdir")
    try:
        done = bare.freestone("compare", "--", "true")
        assert done.returncode == 98 and f"to install some: -m venv --clear {folder}" in done.stderr, done
    finally:
        (bare.tools / "mkdir").unlink()
        shutil.rmtree(folder)


def test_where_packages_cannot_go_the_command_that_was_asked_for_says_so(bare: Machine) -> None:
    (bare.root / ".venv").touch()
    try:
        done = bare.freestone("--with-packages=runtime", "compare", "--", "true")
    finally:
        (bare.root / ".venv").unlink()
    assert done.stderr.startswith(f"freestone: compare: {bare.root}/.venv cannot be written by "), done.stderr


def test_wrong_usage_is_told_before_anything_is_installed(bare: Machine) -> None:
    for words, said in ((["diff", "a"], "the following arguments are required: B"), (["nosuch"], "unknown command")):
        done = bare.freestone(*words)
        assert done.returncode == 2
        assert said in done.stderr and done.stderr.count("\n") == 1


ENTRY = re.compile(r"^([\w.-]+)==\S+(?: ;[^\\]*)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_a_lock_file_holds_what_the_project_asks_for_and_hashes_for_all(file: str) -> None:
    project = tomllib.loads((paths.root() / "lab" / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    if file == "requirements-dev.txt":
        wanted += project["optional-dependencies"]["dev"]
    text = (paths.root() / "lab" / file).read_text()
    locked = ENTRY.findall(text)
    assert {re.split(r"[>=<;\[ ]", name)[0].lower() for name in wanted} <= set(locked)
    assert len(locked) == len(re.findall(r"^\S", text, re.MULTILINE)), "an entry without a version or a hash"
    assert "//" not in text, "no address: the machine's settings say where packages come from"
    assert (environment.WITNESS if file == "requirements.txt" else f"pytest-{own_tests.PLUGIN}") in locked


@needs_library
def test_profiles_need_no_package(bare: Machine, compile_to_preload: Callable[[str, str], Path]) -> None:
    source = "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 9000; i++) if (!malloc(5000)) return 1; }\n"
    program = compile_to_preload("grows.c", source)
    pprof, page = bare.root / "own.pb.gz", bare.root / "own.html"
    for words in (["profile", "-o", str(pprof), "--", str(program)], ["profile", "show", str(pprof), "-o", str(page)]):
        done = bare.freestone(*words)
        assert done.returncode == 0, done.stderr
    assert "main" in page.read_text()
    as_json = bare.root / "own.json"
    done = bare.freestone("profile", "show", str(pprof), "-o", str(as_json))
    assert re.search(r"^inuse_space: .* MiB; itself", done.stderr, re.MULTILINE), done.stderr
    assert json.loads(as_json.read_text())["schema"] == "freestone-profile/1"
    lost = bare.root / "lost.json"
    bare.freestone("leaks", "--json", str(lost), "--error", "0", "--", str(program))
    (process,) = json.loads(lost.read_text())["processes"]
    assert process["lost_bytes"] >= 8000 * 5000 and process["places"]


@pytest.mark.skipif(not (paths.build_dir() / "freestone-replay").exists(), reason="the replayer is not built")
def test_trace_info_needs_no_package(bare: Machine) -> None:
    done = bare.freestone("trace", "info", str(paths.root() / "trace" / "corpus" / "redis.fst"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "752481 events" in done.stdout and "at most 6.9 MiB live in 129600 objects" in done.stdout
