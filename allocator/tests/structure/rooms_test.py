"""Rooms: each file includes its own room and rooms with a smaller number, by the table of docs/ARCHITECTURE.md.

usage: rooms_test.py SOURCES ARCHITECTURE.md
"""

import re
import sys
from pathlib import Path


def numbered_rooms(page: str) -> dict[str, int]:
    rows = re.findall(r"^\| (\d+) \| ([a-z]+) \|", page, re.MULTILINE)
    return {name: int(number) for number, name in rows}


def problems(sources: Path, rooms: dict[str, int]) -> list[str]:
    found = []
    folders = {path.name for path in sources.iterdir() if path.is_dir()}
    found += [f"{name}: a folder without a row in the table" for name in sorted(folders - rooms.keys())]
    found += [f"{name}: a row in the table without a folder" for name in sorted(rooms.keys() - folders)]
    for path in sorted(sources.rglob("*.*")):
        room = path.parent.name
        text = path.read_text()
        if path.suffix in (".cc", ".h") and not text.startswith(f"// Room {rooms.get(room)}, {room}: "):
            found.append(f"{path}: does not begin with '// Room {rooms.get(room)}, {room}: '")
        for included in re.findall(r'^#include "([a-z]+)/', text, re.MULTILINE):
            if included in rooms and rooms[included] > rooms.get(room, 0):
                found.append(f"{path}: includes room {rooms[included]}, {included}, which lies above")
    return found


def main() -> int:
    sources, page = Path(sys.argv[1]), Path(sys.argv[2])
    rooms = numbered_rooms(page.read_text())
    found = problems(sources, rooms)
    if len(rooms) < 5:
        found.append(f"{page}: the table of rooms was not found")
    print("\n".join(found) or f"{len(rooms)} rooms, no include upwards")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
