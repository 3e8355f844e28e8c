"""What the packaging tests share: where things are, and commands that must succeed."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import harness

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CLIENTS = HERE / "clients"
EXAMPLES = ROOT / "examples"
BUILD = Path(os.environ["FREESTONE_BUILD_DIR"])
CC = os.environ["FREESTONE_CC"]
CXX = os.environ["FREESTONE_CXX"]


def call(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Runs a command that must succeed, and returns what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env or harness.environment([]), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def answers(*command: str | Path, env: dict[str, str] | None = None) -> dict[str, str]:
    """The NAME=VALUE lines that a client prints."""
    return dict(line.split("=", 1) for line in call(*command, env=env).splitlines())


def with_variable(name: str, value: Path) -> dict[str, str]:
    return harness.environment([], {name: str(value)})


def make_packages(folder: Path, *kinds: str) -> None:
    """What `./freestone package` makes of the build under test, with times that do not depend on the clock."""
    words = [word for kind in kinds for word in ("--only", kind)]
    settings = {"FREESTONE_ROOT": str(ROOT), "SOURCE_DATE_EPOCH": "1700000000"}
    command = (sys.executable, "-I", "-S", "-B", ROOT / "lab", "package", folder, *words)
    call(*command, env=harness.environment([], settings))


def build(source: Path, folder: Path, *settings: str, targets: tuple[str, ...] = ("all",)) -> None:
    """Configures and builds a project in the folder."""
    call("cmake", "-G", "Ninja", "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", *settings)
    call("cmake", "--build", folder, "-j2", "--target", *targets)


def build_library(folder: Path, *settings: str, targets: tuple[str, ...]) -> None:
    build(ROOT, folder, "-DFREESTONE_TESTS=OFF", "-DFREESTONE_LAB=OFF", *settings, targets=targets)


class InFolder(unittest.TestCase):
    """Cases that share a folder, which goes with them."""

    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
