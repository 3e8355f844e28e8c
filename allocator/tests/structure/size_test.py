"""Size: how large the repository is, how its files depend on each other, and how many figures it chose.

A figure may be one percent, rounded up, above that of the last release, so an addition needs no deletion elsewhere.
size.txt has the figures of the release. `--write` writes those of this tree; packaging/release.sh demands them.

Lines are counted by folder, without results, recorded traces, pictures and lock files. A chosen figure is a constant of
the allocator's rooms that follows from no other one. Those that a measurement could move, the heuristics, stand in one
table; the others are sizes of tables and limits of address spaces. A unit is x.h with x.cc or x.c; a circle, of which
there is none, is a set of units of one room, each of which includes, by way of others, each other.

usage: size_test.py ROOT [--write]
"""

import math
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

RELEASED = "allocator/tests/structure/size.txt"
FOLDERS = ("allocator", "lab")
NOT_COUNTED = re.compile(r"^docs/results/|^trace/corpus/|\.(svg|png)$|(^|/)(Cargo\.lock|requirements(-dev)?\.txt)$")
ROOTS = ("allocator/src", "trace")
CONSTANT = re.compile(r"constexpr [\w:]+ k(?!\w*(?:Shift|Bits) )\w+ = ([^;{]*);")
SIZE_UNIT = re.compile(r"\bk[KMGT]iB\b")
FOLLOWS = re.compile(r"\bk[A-Z]|sizeof|~|<<|0x")
TABLE = "allocator/src/config/heuristics.h"
DECIDING = re.compile(r"src/(cache|front|hardened|policy|slab|span|upkeep)/|/build_config\.h$")


def tracked(root: Path) -> dict[str, Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    return {name: root / name for name in listing.split("\0") if (root / name).is_file()}


def lines(path: Path) -> int:
    data = path.read_bytes()
    return 0 if b"\0" in data else data.count(b"\n")


def circles(room: Path) -> list[list[str]]:
    """The circles among the units of a room, largest first."""
    paths = [path for path in room.iterdir() if path.suffix in (".h", ".c", ".cc")]
    reach = {path.stem: set[str]() for path in paths}
    for path in paths:
        included = re.findall(rf'^#include "{room.name}/(\w+)\.', path.read_text(), re.MULTILINE)
        reach[path.stem] |= set(included) & reach.keys() - {path.stem}
    for through in reach:
        for unit in reach:
            if through in reach[unit]:
                reach[unit] |= reach[through]
    found = {tuple(sorted(other for other in reach[unit] if unit in reach[other])) for unit in reach}
    return sorted((list(units) for units in found if len(units) > 1), key=len, reverse=True)


def chosen(source: str) -> list[str]:
    values = (SIZE_UNIT.sub("1024", value) for value in CONSTANT.findall(source))
    return [value for value in values if re.search(r"[2-9]|\d\d", value) and not FOLLOWS.search(value)]


def folder_of(name: str) -> str:
    return next((folder for folder in FOLDERS if name.startswith(f"{folder}/")), "the rest")


def figures(files: dict[str, Path]) -> Counter[str]:
    found = Counter[str]()
    for name, path in files.items():
        found[f"lines of {folder_of(name)}"] += 0 if NOT_COUNTED.search(name) else lines(path)
    source = {name: path for name, path in files.items() if path.suffix in (".cc", ".h", ".py")}
    found["lines of the longest file of allocator/src"], longest = max(
        (lines(path), name) for name, path in source.items() if name.startswith("allocator/src/")
    )
    [(fullest, found["source files of the fullest folder"])] = Counter(map(os.path.dirname, source)).most_common(1)
    found["heuristics"] = len(chosen(source[TABLE].read_text()))
    deciding = [path for name, path in source.items() if DECIDING.search(name)]
    found["other chosen figures"] = sum(len(chosen(path.read_text())) for path in deciding)
    print(f"the longest file is {longest}, the fullest folder {fullest}")
    return found


def main() -> int:
    root = Path(sys.argv[1]).resolve()
    try:
        files = tracked(root)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: {error}")
        return 77
    found = figures(files)
    if sys.argv[2:] == ["--write"]:
        (root / RELEASED).write_text("".join(f"{value} {name}\n" for name, value in sorted(found.items())))
    released = {name: int(value) for value, name in re.findall(r"(\d+) (.+)", (root / RELEASED).read_text())}
    limits = {name: math.ceil(1.01 * released.get(name, 0)) for name in found}
    for name, value in found.items():
        print(f"{name}: {value}, at most {limits[name]}")
    rooms = sorted({path.parent for name, path in files.items() if name.startswith(ROOTS)})
    knots = [(room, circle) for room in rooms for circle in circles(room)]
    for room, circle in knots:
        print(f"circle in {room}: {', '.join(circle)}")
    return 1 if knots or any(value > limits[name] for name, value in found.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
