"""Each recipe of docs/RECIPES.md works on a copy of the tree, and touches at most four files.

A recipe is a heading below "Recipes". It edits a file by "In `FILE`, below `TEXT`" or "In `FILE`, instead of `TEXT`",
where one line of the file holds the text, or makes "A new file `FILE`"; the next block holds the lines. The block of
shell commands behind "It works" then ends with status 0.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from freestone_lab.core import paths

ROOT = paths.root()
PAGE = (ROOT / "docs/RECIPES.md").read_text(encoding="utf-8")
COPIED = ("allocator/include", "allocator/src", "docs", "lab/freestone_lab", "lab/peers", "lab/workloads")
MOST_FILES = 4

STEP = re.compile(
    r"(?:In `(?P<file>[^`]+)`,\s+(?P<how>below|instead\s+of)\s+`(?P<text>[^`]+)`|A new file `(?P<new>[^`]+)`)"
    r"[^`]*```\n(?P<lines>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Step:
    """Without a `text` the file is new."""

    file: str
    text: str
    instead: bool
    lines: str

    def take(self, tree: Path) -> None:
        path = tree / self.file
        if not self.text:
            assert not path.exists()
            path.write_text(self.lines)
            return
        old = path.read_text().splitlines(keepends=True)
        places = [number for number, line in enumerate(old) if self.text in line.replace("`", "")]
        assert len(places) == 1, f"{self.file}: {len(places)} lines hold '{self.text}'"
        at = places[0]
        kept = "" if self.instead else old[at]
        path.write_text("".join([*old[:at], kept, self.lines, *old[at + 1 :]]))


def recipes() -> dict[str, str]:
    part = PAGE.partition("\n## Recipes\n")[2].partition("\n## ")[0]
    return {name: text for name, _, text in (block.partition("\n") for block in part.split("\n### ")[1:])}


def steps_of(text: str) -> list[Step]:
    return [
        Step(m["file"] or m["new"], m["text"] or "", (m["how"] or "").startswith("instead"), m["lines"])
        for m in STEP.finditer(text)
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in COPIED:
        left_out = shutil.ignore_patterns("__pycache__", "results", "plots")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=left_out)
    for name in ("CMakePresets.json", "CMakeLists.txt", "allocator/CMakeLists.txt", "lab/__main__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_there_are_the_seven() -> None:
    things = ["a size class", "an option", "a statistic", "a mitigation", "a workload", "a command", "a peer"]
    assert list(recipes()) == [f"Add {thing}" for thing in things]


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_works(name: str, tree: Path) -> None:
    text = recipes()[name]
    steps = steps_of(text)
    assert 1 < len({step.file for step in steps}) <= MOST_FILES
    assert len(re.findall(r"^```$", text, re.MULTILINE)) == 2 * len(steps) + 1, "a block belongs to no step"
    build = paths.build_dir()
    if "$BUILD" in text and not (build / "freestone-workload").exists():
        pytest.skip("no release build")
    for step in steps:
        step.take(tree)
    shell = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    folders = {"PYTHONPATH": str(tree / "lab"), "FREESTONE_ROOT": str(tree), "BUILD": str(build)}
    env = {**os.environ, **folders, "PATH": path}
    done = subprocess.run(["sh", "-ec", "\n".join(shell)], cwd=tree, env=env, capture_output=True, text=True)
    assert shell
    assert done.returncode == 0, done.stdout + done.stderr
