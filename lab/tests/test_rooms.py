"""The rooms of the lab and of the trace, by the tables of docs/ARCHITECTURE-LAB.md: each file reaches only rooms below
its own. A module of the lab is known by its name alone."""

import ast
import re
from collections import Counter
from pathlib import Path

from freestone_lab.core import paths

PACKAGE = paths.root() / "lab" / "freestone_lab"
TRACE = paths.root() / "trace"


def _table(folder: str) -> list[str]:
    """The rooms of a folder, from the ground up."""
    page = (paths.root() / "docs/ARCHITECTURE-LAB.md").read_text(encoding="utf-8")
    rows = page.partition(f"room of `{folder}/`")[2].partition("\n\n")[0]
    return re.findall(r"^\| \d+ \| (\w+) \|", rows, re.MULTILINE)


ROOMS = _table("lab/freestone_lab")


def _room(module: str) -> str:
    return module.split(".")[1]


def _imported(path: Path) -> set[str]:
    """The lab's modules that a file names in an import statement, wherever the statement stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides which room it reaches"
            module = node.module or ""
            names |= {f"{module}.{alias.name}" for alias in node.names} if module == PACKAGE.name else {module}
    return {name for name in names if name.startswith(f"{PACKAGE.name}.")}


def test_every_room_imports_only_rooms_below_it() -> None:
    upward = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in sorted(_imported(path))
        if ROOMS.index(_room(name)) > ROOMS.index(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    ]
    assert upward == []


def test_every_file_of_the_trace_includes_only_rooms_below_it() -> None:
    rooms = _table("trace")
    files = [path for path in sorted(TRACE.rglob("*.*")) if path.suffix in (".c", ".cc", ".h")]
    pairs = [
        (path, included)
        for path in files
        if path.parent.name in rooms
        for included in re.findall(r'^#include "(\w+)/', path.read_text(encoding="utf-8"), re.MULTILINE)
        if included != "freestone"
    ]
    assert [f"{path.name}: {room}" for path, room in pairs if rooms.index(room) > rooms.index(path.parent.name)] == []
    assert {path.parent.name for path, _ in pairs} == set(rooms)


def test_no_two_modules_share_a_name() -> None:
    stems = Counter(path.stem for path in PACKAGE.rglob("*.py") if path.stem != "__init__")
    assert [stem for stem, count in stems.items() if count > 1] == []


def test_the_tests_stand_in_the_rooms_that_they_test() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set(ROOMS) - {"cli"}
    folders = {path.parent.name for path in (paths.root() / "lab" / "tests").glob("*/test_*.py")}
    assert folders <= rooms
