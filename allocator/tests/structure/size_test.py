"""Size: how large the repository is, how its files depend on each other, and how many figures it chose.

The count of lines leaves out results, recorded traces, pictures and lock files. A unit is x.h with x.cc; a circle is a
set of units of one room, each of which includes, by way of others, each other. A chosen figure is a constant of the
allocator's rooms that follows from no other one. Those that a measurement could move, the heuristics, stand in one
table; the others are sizes of tables and limits of address spaces. The limits only fall.

usage: size_test.py ROOT
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

LINES = 109_467
FILE_OF_SRC = 440  # lines of the longest
FOLDER = 32  # source files
IN_CIRCLES = 0  # units
HEURISTICS = 60  # constants of their table
CHOSEN = 35  # constants outside it
NOT_COUNTED = re.compile(r"^docs/results/|^trace/corpus/|\.(svg|png)$|lock|requirements.*\.txt$")
ROOTS = ("allocator/src", "trace")
CONSTANT = re.compile(r"constexpr [\w:]+ k(?!\w*(?:Shift|Bits) )\w+ = ([^;{]*);")
SIZE_UNIT = re.compile(r"\bk[KMGT]iB\b")
FOLLOWS = re.compile(r"\bk[A-Z]|sizeof|~|<<|0x")
TABLE = "allocator/src/config/heuristics.h"
DECIDING = re.compile(r"src/(cache|front|hardened|policy|slab|span|upkeep)/|/build_config\.h$")


def tracked(root: Path) -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    return [root / name for name in listing.split("\0") if name and (root / name).is_file()]


def lines(path: Path) -> int:
    data = path.read_bytes()
    return 0 if b"\0" in data else data.count(b"\n")


def circles(room: Path) -> list[list[str]]:
    """The circles among the units of a room, largest first."""
    paths = [path for path in room.iterdir() if path.suffix in (".h", ".cc")]
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


def main() -> int:
    root = Path(sys.argv[1])
    try:
        files = tracked(root)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: {error}")
        return 77
    counted = sum(lines(path) for path in files if not NOT_COUNTED.search(str(path.relative_to(root))))
    source = [path for path in files if path.suffix in (".cc", ".h", ".py")]
    longest = max((lines(path), str(path)) for path in source if path.is_relative_to(root / "allocator/src"))
    fullest = max((count, str(folder)) for folder, count in Counter(p.parent for p in source).items())
    rooms = sorted({path.parent for path in source if str(path.relative_to(root)).startswith(ROOTS)})
    knots = [(room.name, circle) for room in rooms for circle in circles(room)]
    for room, circle in knots:
        print(f"circle in {room}: {', '.join(circle)}")
    constants = sum(len(chosen(path.read_text())) for path in source if DECIDING.search(str(path)))
    figures = {
        "lines": (counted, LINES), f"lines of {longest[1]}": (longest[0], FILE_OF_SRC),
        f"files in {fullest[1]}": (fullest[0], FOLDER), "units in circles": (sum(len(c) for _, c in knots), IN_CIRCLES),
        "heuristics": (len(chosen((root / TABLE).read_text())), HEURISTICS), "chosen figures": (constants, CHOSEN),
    }  # fmt: skip
    for name, (value, limit) in figures.items():
        print(f"{name}: {value}, at most {limit}")
    return 1 if any(value > limit for value, limit in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
