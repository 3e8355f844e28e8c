"""set_version.py VERSION: writes the version to every place that says it, in the place's own spelling.

`1.2.0` is a release: its notes and Debian's changelog get this day. `1.2.0-dev`, which `main` has from the day after a
release on, opens a section in both.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEV = "-dev"
CARGO = r'\nname = "freestone(?:-example)?"\nversion = "'
# What stands before the version, and how a development version ends there.
PLACES = {
    "CMakeLists.txt": (r"set\(FREESTONE_VERSION ", DEV),
    "docs/OBSERVABILITY.md": (r'freestone(?: |":")', DEV),
    "lab/pyproject.toml": (r'\nversion = "', ".dev0"),
    "rust/Cargo.toml": (CARGO, DEV),
    "rust/Cargo.lock": (CARGO, DEV),
    "examples/rust/Cargo.toml": (CARGO, DEV),
    "packaging/debian/shlibs": (r">= ", "~dev"),
}
HEADER, NOTES, DEBIAN = "allocator/include/freestone/freestone.h", "CHANGELOG.md", "packaging/debian/changelog"


def put(text: str, before: str, version: str) -> str:
    """The text with the version wherever one stands behind `before`."""
    changed, count = re.subn(rf"({before})\d+(?:\.\d+\.\d+[\w~-]*(?:\.dev0)?)?", rf"\g<1>{version}", text)
    if not count:
        raise SystemExit(f"set_version.py: expected a version behind '{before}'")
    return changed


def notes(text: str, numbers: str, day: str) -> str:
    """CHANGELOG.md, whose first section is of these numbers and this day; a release keeps the day that it has."""
    first = re.search(r"^## (\S+) \((.*)\)$", text, re.MULTILINE)
    assert first is not None
    opened = f"## {numbers} ({day})"
    if first[1] != numbers:
        return f"{text[: first.start()]}{opened}\n\n{text[first.start() :]}"
    return text if "unreleased" not in (first[2], day) else text.replace(first[0], opened, 1)


def debian(text: str, spelled: str, now: datetime) -> str:
    """Debian's changelog, whose first entry is of this version."""
    first = re.match(r"freestone \((.*)-1\) .*\n((?:.*\n)*? -- .*>  ).*\n", text)
    assert first is not None
    if first[1] == spelled:
        return text
    body, rest = "\n  * See CHANGELOG.md.\n\n -- Freestone maintainers <maintainers@freestone.invalid>  ", f"\n{text}"
    if first[1].partition("~")[0] == spelled.partition("~")[0]:
        body, rest = first[2], text[first.end() :]
    head = f"freestone ({spelled}-1) {'UNRELEASED' if '~' in spelled else 'unstable'}; urgency=medium\n"
    return f"{head}{body}{format_datetime(now)}\n{rest}"


def main(version: str) -> None:
    now, numbers = datetime.now(UTC), version.removesuffix(DEV)
    made = {name: (ROOT / name).read_text() for name in (*PLACES, HEADER, NOTES, DEBIAN)}
    for name, (before, ending) in PLACES.items():
        made[name] = put(made[name], before, version.replace(DEV, ending))
    for part, number in zip(("MAJOR", "MINOR", "PATCH"), numbers.split("."), strict=True):
        made[HEADER] = put(made[HEADER], f"#define FREESTONE_VERSION_{part} ", number)
    made[NOTES] = notes(made[NOTES], numbers, now.date().isoformat() if version == numbers else "unreleased")
    made[DEBIAN] = debian(made[DEBIAN], version.replace(DEV, "~dev"), now)
    for name, text in made.items():
        (ROOT / name).write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not re.fullmatch(rf"\d+\.\d+\.\d+(?:{DEV})?", sys.argv[1]):
        sys.exit("usage: set_version.py MAJOR.MINOR.PATCH[-dev]")
    main(sys.argv[1])
