"""Shared fixtures: a small allocating program and the control allocators, compiled once per test session."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import peers_tools
import pytest

from freestone_lab.core import paths
from freestone_lab.core.result import Peer

sys.path.append(str(paths.root() / "allocator" / "tests"))
from support import place

PROGRAMS = Path(__file__).parent / "programs"
GLIBC = Peer("glibc", None, "libc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--programs", action="store_true", help="also run the tests that start real servers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--programs"):
        return
    for item in items:
        if "programs" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="starts real servers; run with --programs"))


def pytest_configure() -> None:
    """What a test inherits is the same wherever the tests are started. Settings of their own stay."""
    place.settle()
    for name in [name for name in os.environ if re.match("FREESTONE_(?!TEST_)", name)]:
        del os.environ[name]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what the tests compile."""
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="session")
def compile_to_preload(built: Path) -> Callable[[str, str], Path]:
    """Compiles a source under a file name, with debugging information and calls of malloc that stay.

    Skips where there is no library to run the program with.
    """
    if not (paths.build_dir() / "libfreestone.so").exists():
        pytest.skip("libfreestone.so is not built")

    def compiled(name: str, source: str) -> Path:
        file = built / name
        file.write_text(source)
        compiler = "cc" if file.suffix == ".c" else "c++"
        subprocess.run([compiler, "-g", "-O1", "-fno-builtin", str(file), "-o", str(file.with_suffix(""))], check=True)
        return file.with_suffix("")

    return compiled


@pytest.fixture(scope="session")
def work(built: Path) -> Path:
    """The program of programs/work.c."""
    return peers_tools.compiled(built / "work", PROGRAMS / "work.c")


@pytest.fixture(scope="session")
def static_program(built: Path) -> Path:
    """The same program, statically linked."""
    return peers_tools.compiled(built / "work-static", PROGRAMS / "work.c", "-static")


@pytest.fixture(scope="session")
def controls(built: Path) -> dict[str, Peer]:
    """The control allocators by name, built from lab/peers/controls."""
    found = peers_tools.build_controls(built / "controls").glob("libcontrol-*.so")
    return {name: Peer(name, str(path)) for path in found for name in [path.stem.removeprefix("libcontrol-")]}
