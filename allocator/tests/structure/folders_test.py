"""Folders: each folder of tests has a row in README.md, each test a name of its own, and each suite of unit/ is run.

usage: folders_test.py TESTS SOURCES
"""

import re
import sys
from collections import Counter
from pathlib import Path


def unit_problems(unit: Path, rooms: set[str]) -> list[str]:
    found = []
    listed = re.search(r"set\(suites ([a-z_\s]+)\)", (unit / "CMakeLists.txt").read_text())
    suites = set(listed[1].split()) if listed else set()
    for path in sorted(unit.glob("*_test.cc")):
        name = path.stem.removesuffix("_test")
        if not any(name == room or name.startswith(f"{room}_") for room in rooms):
            found.append(f"{path}: does not begin with the name of a room")
        if name not in suites:
            found.append(f"{path}: not in the list of suites")
        others = set(re.findall(r"^TEST\((\w+),", path.read_text(), re.MULTILINE)) - {name}
        found += [f"{path}: the tests of suite {other} never run" for other in sorted(others)]
    return found


def problems(tests: Path, sources: Path) -> list[str]:
    rooms = {path.name for path in sources.iterdir() if path.is_dir()}
    folders = {path.name for path in tests.iterdir() if path.is_dir() and path.name not in ("support", "__pycache__")}
    rows = set(re.findall(r"^\| `([a-z]+)/` \|", (tests / "README.md").read_text(), re.MULTILINE))
    found = [f"README.md: no row for {name}/, or no folder for its row" for name in sorted(folders ^ rows)]
    names = Counter(path.stem for path in tests.rglob("*_test.*") if path.suffix in (".cc", ".py"))
    found += [f"{name}: {count} tests have this name" for name, count in sorted(names.items()) if count > 1]
    return found + unit_problems(tests / "unit", rooms)


def main() -> int:
    found = problems(Path(sys.argv[1]), Path(sys.argv[2]))
    print("\n".join(found) or "every test has its place")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
