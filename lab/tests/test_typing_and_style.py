"""The tool's own sources: typed throughout, and in the style that the linter keeps."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from freestone_lab import paths

COMMANDS = [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_checkers_find_nothing(command: list[str]) -> None:
    beside = Path(sys.executable).parent / command[0]
    found = str(beside) if beside.exists() else shutil.which(command[0])
    if found is None:
        pytest.skip(f"{command[0]} is not installed; it comes with the [dev] extra")
    folder = paths.root() / "lab"
    done = subprocess.run([found, *command[1:]], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
