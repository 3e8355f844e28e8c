"""allocator/tests/structure/size_test.py takes what one percent allows, and nothing above it."""

import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from freestone_lab.core import paths

FIGURES = "allocator/tests/structure/size.txt"


def passes(tree: Path, *words: str) -> bool:
    subprocess.run(["git", "add", "--all"], cwd=tree, check=True)
    command = [sys.executable, str(paths.root() / "allocator/tests/structure/size_test.py"), str(tree), *words]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of the allocator's sources."""
    shutil.copytree(paths.root() / "allocator/src", tmp_path / "allocator/src")
    (tmp_path / FIGURES).parent.mkdir(parents=True)
    (tmp_path / FIGURES).write_text("\n" * 10)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_one_percent_of_lines_is_allowed_whatever_a_file_is_called(tree: Path) -> None:
    source = tree / "allocator/src"
    assert passes(tree, "--write") and passes(tree, "--write")  # the file of figures counts itself
    was = {name: int(value) for value, _, name in (n.partition(" ") for n in (tree / FIGURES).open())}
    more = math.ceil(0.01 * was["lines of allocator\n"])
    (source / "stacks/blocks_locked.h").write_text("//\n" * more)
    (source / "Cargo.lock").write_text("\n" * 9999)
    assert passes(tree)
    (source / "stacks/blocks_locked.h").write_text("//\n" * (more + 1))
    assert not passes(tree)
    assert passes(tree, "--write")


def test_a_circle_of_units_is_refused_by_a_release_too(tree: Path) -> None:
    for suffix in ("h", "cc", "c"):
        for one, other in ("ab", "ba"):
            file = tree / f"allocator/src/limits/{one}.{suffix if one == 'a' else 'h'}"
            file.write_text(f'#include "limits/{other}.h"\n')
        assert not passes(tree, "--write")
        file.unlink()
        (tree / f"allocator/src/limits/a.{suffix}").unlink()
        assert passes(tree, "--write")
