"""The version stands in the top CMakeLists.txt; every other place that must say it says the same."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

import pytest

from freestone_lab.core import paths

ROOT = paths.root()
# By file, what stands before the version and behind it.
PLACES = {
    "docs/OBSERVABILITY.md": ('{"freestone":"', '"'),
    "lab/pyproject.toml": ('\nversion = "', '"'),
    "rust/Cargo.toml": ('\nversion = "', '"'),
    "examples/rust/Cargo.toml": ('\nversion = "', '"'),
    "packaging/alpine/APKBUILD": ("\npkgver=", "\n"),
    "packaging/debian/changelog": ("freestone (", "-1)"),
    "packaging/debian/shlibs": ("libfreestone1 (>= ", ")"),
    "rust/Cargo.lock": ('\nname = "freestone"\nversion = "', '"'),
}


def version() -> str:
    found = re.search(r"project\(freestone VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())
    assert found is not None
    return found[1]


@pytest.mark.parametrize("place", PLACES)
def test_a_place_says_the_version(place: str) -> None:
    before, behind = PLACES[place]
    assert f"{before}{version()}{behind}" in "\n" + (ROOT / place).read_text()


def test_the_header_says_the_version() -> None:
    header = (ROOT / "allocator/include/freestone/freestone.h").read_text()
    parts = re.findall(r"#define FREESTONE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    assert ".".join(parts) == version()


def test_no_place_says_another_version() -> None:
    for place in ("docs/OBSERVABILITY.md", "packaging/debian/shlibs"):
        said = re.findall(r'(?:freestone"?[ :]"?|>= )(\d+\.\d+\.\d+)', (ROOT / place).read_text())
        assert set(said) == {version()}, place


def test_the_changelog_has_notes_of_the_day_on_which_debian_has_the_version() -> None:
    heading = re.search(rf"\n## {version()} \((.*)\)\n", (ROOT / "CHANGELOG.md").read_text())
    signed = re.search(r"\n -- .*>  (.*)\n", (ROOT / "packaging/debian/changelog").read_text())
    assert heading and signed
    assert heading[1] == parsedate_to_datetime(signed[1]).date().isoformat()
