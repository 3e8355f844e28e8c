"""Columns: no line of a source or document is longer than 120 characters.

Tables are exempt: rows of Markdown, and the files of TABLES, whose lines are records (an option, a program).
So are lines that are one link.

usage: columns_test.py ROOT
"""

import sys
from pathlib import Path

LONGEST = 120
FOLDERS = (".", "allocator", "cmake", "docs", "examples", "lab", "packaging", "rust", "trace")
ENDINGS = {".c", ".cc", ".cmake", ".cpp", ".def", ".h", ".hpp", ".md", ".py", ".rs", ".sh"}
OUTSIDE = {"build", "target", "__pycache__", ".venv", "data", "node_modules"}
TABLES = {
    "allocator/src/config/options.def",
    "allocator/tests/preload/catalogue.py",
    "allocator/tests/preload/languages.py",
    "allocator/tests/preload/linked.py",
    "docs/ATTACKS.md",
    "docs/BENCHMARKS.md",
}


def sources(root: Path) -> list[Path]:
    found = []
    for folder in FOLDERS:
        paths = (root / folder).glob("*") if folder == "." else (root / folder).rglob("*")
        found += [p for p in paths if p.suffix in ENDINGS or p.name == "CMakeLists.txt"]
    inside = [p for p in found if not OUTSIDE & set(p.relative_to(root).parts)]
    return sorted(p for p in set(inside) if str(p.relative_to(root)) not in TABLES)


def long_lines(path: Path) -> list[int]:
    exempt = "|" if path.suffix == ".md" else "\0"
    lines = path.read_text(encoding="utf-8").splitlines()
    wide = [(n, line) for n, line in enumerate(lines, 1) if len(line) > LONGEST and not line.startswith(exempt)]
    return [n for n, line in wide if len(line.split()) > 2]


def main() -> int:
    root = Path(sys.argv[1])
    paths = sources(root)
    found = [f"{path}:{number}: above {LONGEST} columns" for path in paths for number in long_lines(path)]
    print("\n".join(found) or f"{len(paths)} files keep to {LONGEST} columns")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
