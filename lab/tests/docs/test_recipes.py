"""Each recipe of docs/RECIPES.md works on a copy of the tree, and touches at most four files.

A recipe is a heading below "Recipes". It edits a file by "In `FILE`, below `TEXT`" or "In `FILE`, instead of `TEXT`",
where one line of the file holds the text, or makes "A new file `FILE`"; the next block holds the lines. The block of
shell commands behind "It works" then ends with status 0.

Three of them, as commits of a clone, pass what judges an addition, with nothing deleted elsewhere.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_tools import clone_into

from freestone_lab.core import paths

ROOT = paths.root()
PAGE = (ROOT / "docs/RECIPES.md").read_text(encoding="utf-8")
COPIED = ("allocator/include", "allocator/src", "docs", "lab/freestone_lab", "lab/peers", "lab/workloads")
MOST_FILES = 4
# The recipes are taken under other names here, since the clone's own tests take them once more.
COMMITTED = {"an option": ("hello", "howdy"), "a statistic": (r"\bshards\b", "groups"), "a workload": ("ello", "owdy")}
NOTICING = [
    ("docs", "not test_recipes and not test_printed_commands"),
    ("test_promises.py test_rooms.py test_version.py workloads/test_suites.py", "test"),
    ("workloads/test_workload_program.py", "howdy or every_workload"),
]

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


def run(tree: Path, *command: str) -> None:
    """Without what the environment says about the tree that these tests belong to."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FREESTONE", "PYTEST", "PYTHON"))}
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which these recipes are committed."""
    folder = tmp_path_factory.mktemp("extended") / "clone"
    clone_into(folder)
    if (folder / "lab/workloads/src/work/howdy.cc").exists():
        pytest.skip("a clone of this test's")
    commit = ("-c", "user.name=test", "-c", "user.email=test@freestone.invalid", "commit", "-aqm")
    for thing, (own, other) in COMMITTED.items():
        for step in steps_of(re.sub(own, other, recipes()[f"Add {thing}"])):
            step.take(folder)
        run(folder, "git", "add", "--all")
        run(folder, "git", *commit, f"recipe: {thing}")
    run(folder, "./freestone", "docs")
    run(folder, "git", *commit, "docs: made anew")
    return folder


def test_committed_recipes_pass_the_tests_of_structure(extended: Path) -> None:
    if not (paths.build_dir() / "CTestTestfile.cmake").exists():
        pytest.skip("no release build")
    listed = ["ctest", "--test-dir", str(paths.build_dir()), "-L", "structure", "-E", "mitigations"]
    done = subprocess.run([*listed, "--show-only=json-v1"], capture_output=True, check=True)
    commands = [test["command"] for test in json.loads(done.stdout)["tests"]]
    assert any("size_test.py" in command[1] for command in commands)
    for command in commands:
        run(extended, *(re.sub(rf"^{re.escape(str(ROOT))}(?!/build/)", str(extended), word) for word in command))


@pytest.mark.all
@pytest.mark.parametrize(("files", "chosen"), NOTICING)
def test_committed_recipes_pass_the_labs_tests_that_notice_them(files: str, chosen: str, extended: Path) -> None:
    pytest_ = ("../.venv/bin/python", "-m", "pytest", "-m", "not timing and not long", "-k", chosen)
    run(extended / "lab", *pytest_, *(f"tests/{file}" for file in files.split()))


@pytest.mark.long
def test_committed_recipes_pass_the_whole_run(extended: Path) -> None:
    run(extended, ".ci/run")
