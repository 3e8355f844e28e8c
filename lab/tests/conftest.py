"""Shared fixtures: a small allocating program and the control allocators, compiled once per test session."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from freestone_lab import paths
from freestone_lab.model import Peer

PROGRAMS = Path(__file__).parent / "programs"
GLIBC = Peer("glibc", None, "libc")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what the tests compile."""
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="session")
def work(built: Path) -> Path:
    """The program of programs/work.c."""
    target = built / "work"
    subprocess.run(["cc", "-O1", "-fno-builtin", str(PROGRAMS / "work.c"), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def static_program(built: Path) -> Path:
    """The same program, statically linked."""
    target = built / "work-static"
    subprocess.run(["cc", "-static", "-O1", str(PROGRAMS / "work.c"), "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="session")
def controls(built: Path) -> dict[str, Peer]:
    """The control allocators by name, built from lab/peers/controls."""
    source, folder = paths.root() / "lab" / "peers" / "controls", built / "controls"
    subprocess.run(["cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(folder)], check=True, capture_output=True)
    prefix = "libcontrol-"
    return {
        path.stem.removeprefix(prefix): Peer(path.stem.removeprefix(prefix), str(path))
        for path in folder.glob(f"{prefix}*.so")
    }
