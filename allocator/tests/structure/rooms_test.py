"""Rooms: each file includes its own room and rooms with a smaller number, by the table of docs/ARCHITECTURE.md; and the
names that lead upward all the same are those of the page's second table.

usage: rooms_test.py SOURCES ARCHITECTURE.md OBJECTS...
"""

import re
import subprocess
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


def linked_upward(objects: list[Path], rooms: dict[str, int]) -> dict[str, str]:
    """Our names that an object of a room lacks and one of a room above it defines, with that room."""
    defined: dict[str, str] = {}
    lacked: list[tuple[str, str]] = []
    paths = sorted(path for folder in objects for path in folder.rglob("*.o") if path.parent.name in rooms)
    listing = subprocess.run(["nm", "-AC", *map(str, paths)], capture_output=True, text=True, check=True).stdout
    for path, kind, name in re.findall(r"^(.+?\.o):[0-9a-f ]+ ([A-Za-z]) freestone::(.+)$", listing, re.MULTILINE):
        if kind == "U":
            lacked.append((name, Path(path).parent.name))
        else:
            defined.setdefault(name, Path(path).parent.name)
    leads = [name for name, room in lacked if name in defined and rooms[defined[name]] > rooms[room]]
    return {name.partition("(")[0]: defined[name] for name in leads}


def upward(sources: Path, objects: list[Path], rooms: dict[str, int]) -> set[tuple[str, str, str]]:
    """Each name, the room that declares it and the room above to which it leads."""
    found = linked_upward(objects, rooms)
    texts = {path: path.read_text() for path in sorted(sources.rglob("*.*")) if path.suffix in (".cc", ".h")}
    headers = sorted((path for path in texts if path.suffix == ".h"), key=lambda path: rooms[path.parent.name])
    stored = {name: path.parent.name for path in texts for name in re.findall(r"\b(\w+)\.store_", texts[path])}
    for path in headers:
        for kind, name in re.findall(r"^extern [^;(]*Atomic<([^>]+)> (\w+);", texts[path], re.MULTILINE):
            leads = kind.endswith("*") or re.search(rf"using {kind} = .*\(\*\)", texts[path])
            if leads and rooms[stored.get(name, path.parent.name)] > rooms[path.parent.name]:
                found[name] = stored[name]
    declared = {n: next(p.parent.name for p in headers if re.search(rf"\b{n}\b", texts[p])) for n in found}
    return {(name, declared[name], room) for name, room in found.items()}


def main() -> int:
    sources, page, *objects = map(Path, sys.argv[1:])
    rooms = numbered_rooms(page.read_text())
    found = problems(sources, rooms)
    rows = set(re.findall(r"^\| `(\w+)` \| ([a-z]+) \| ([a-z]+) \|", page.read_text(), re.MULTILINE))
    leads = upward(sources, objects, rooms)
    found += [f"{page}: {name}, {low} to {high}: the row does not lead upward" for name, low, high in rows - leads]
    found += [f"{name} leads upward, from {low} to {high}: no such row" for name, low, high in leads - rows]
    if len(rooms) < 5:
        found.append(f"{page}: the table of rooms was not found")
    print("\n".join(found) or f"{len(rooms)} rooms, no include upwards")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
