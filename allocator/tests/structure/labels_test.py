"""Invariants: each is stated once, under a label, beside what it is about; a check in the code or a test names it.

usage: labels_test.py ALLOCATOR ARCHITECTURE.md
"""

import re
import sys
from collections import Counter
from pathlib import Path

LABEL = r"[A-Z]{4,}-\d"


def named(text: str) -> set[str]:
    """The labels in a text; a range of a room names all in it."""
    labels = set(re.findall(rf"\b({LABEL})\b", text))
    for room, first, last in re.findall(r"\b([A-Z]{4,})-(\d) to \1-(\d)\b", text):
        labels |= {f"{room}-{k}" for k in range(int(first), int(last) + 1)}
    return labels


def texts(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(folder.rglob("*")) if path.suffix in (".cc", ".h", ".c", ".py")}


def problems(sources: dict[Path, str], tests: dict[Path, str], page: Path) -> list[str]:
    statement = re.compile(rf"^// ({LABEL})  \S", re.MULTILINE)
    stated = Counter(label for text in sources.values() for label in statement.findall(text))
    checked = {label for text in sources.values() for label in re.findall(rf'FREESTONE_CHECK\("({LABEL})"', text)}
    tested = {label for text in tests.values() for label in named(text)}
    found = [f"{label}: stated {count} times" for label, count in sorted(stated.items()) if count > 1]
    unseen = sorted(stated.keys() - checked - tested)
    found += [f"{label}: neither a check in the code nor a test that names it" for label in unseen]
    for path, text in {**sources, **tests, page: page.read_text()}.items():
        found += [f"{path}: names {label}, which no comment states" for label in sorted(named(text) - stated.keys())]
    if not stated or not checked:
        found.append("no label was found")
    return found


def main() -> int:
    allocator, page = Path(sys.argv[1]), Path(sys.argv[2])
    found = problems(texts(allocator / "src"), texts(allocator / "tests"), page)
    print("\n".join(found) or "each label is stated once and looked at")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
