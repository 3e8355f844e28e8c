"""The version stands in the top CMakeLists.txt; packaging/set_version.py writes it there and to every other place."""

import re
import shutil
import subprocess
import sys
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from packaging.version import Version

from freestone_lab.core import paths

ROOT = paths.root()
NOTES, DEBIAN, SCRIPT = "CHANGELOG.md", "packaging/debian/changelog", "packaging/set_version.py"
# What each place says of 9.8.7-dev; of 9.8.7 it says the same without what is marked.
PLACES = {
    "CMakeLists.txt": "\nset(FREESTONE_VERSION 9.8.7<-dev>)",
    "allocator/include/freestone/freestone.h": "_MAJOR 9\n#define FREESTONE_VERSION_MINOR 8\n"
    "#define FREESTONE_VERSION_PATCH 7\n",
    "docs/OBSERVABILITY.md": '{"freestone":"9.8.7<-dev>",',
    "lab/pyproject.toml": '\nversion = "9.8.7<.dev0>"',
    "rust/Cargo.toml": '\nversion = "9.8.7<-dev>"',
    "rust/Cargo.lock": '\nname = "freestone"\nversion = "9.8.7<-dev>"',
    "examples/rust/Cargo.toml": '\nversion = "9.8.7<-dev>"',
    "packaging/debian/shlibs": "libfreestone1 (>= 9.8.7<~dev>)",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (*PLACES, NOTES, DEBIAN, SCRIPT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def set_version(tree: Path, version: str) -> None:
    subprocess.run([sys.executable, str(tree / SCRIPT), version], check=True)


def test_every_place_says_the_version_of_this_tree(tree: Path) -> None:
    set_version(tree, paths.version())
    assert [name for name in (*PLACES, NOTES, DEBIAN) if (tree / name).read_bytes() != (ROOT / name).read_bytes()] == []
    assert subprocess.check_output([ROOT / "freestone", "--version"], text=True) == f"freestone {paths.version()}\n"


@pytest.mark.parametrize("version", ["9.8.7", "9.8.7-dev"])
def test_every_place_gets_another_version_in_its_own_spelling(tree: Path, version: str) -> None:
    set_version(tree, version)
    old = paths.version().removesuffix("-dev")
    for place, said in PLACES.items():
        text = (tree / place).read_text()
        assert re.sub("<(.*)>", r"\1" if version.endswith("-dev") else "", said) in text, place
        assert not re.search(rf"(freestone(:| |\")*|>= |version = \"){re.escape(old)}", text), place


def test_a_development_version_sorts_before_its_release() -> None:
    assert Version("9.8.6") < Version("9.8.7.dev0") < Version("9.8.7")
    if shutil.which("dpkg"):
        for before, behind in (("9.8.6-1", "9.8.7~dev-1"), ("9.8.7~dev-1", "9.8.7-1")):
            subprocess.run(["dpkg", "--compare-versions", before, "lt", behind], check=True)


def days(tree: Path) -> tuple[str, str]:
    """The day of the first section of the changelog, and of Debian's first entry."""
    heading = re.search(r"^## \S+ \((.*)\)$", (tree / NOTES).read_text(), re.MULTILINE)
    signed = re.search(r"^ -- .*>  (.*)$", (tree / DEBIAN).read_text(), re.MULTILINE)
    assert heading and signed
    return heading[1], parsedate_to_datetime(signed[1]).date().isoformat()


def test_a_release_has_the_same_day_in_both_changelogs(tree: Path) -> None:
    if not paths.version().endswith("-dev"):
        assert len(set(days(tree))) == 1
    before = [(tree / name).read_text() for name in (NOTES, DEBIAN)]
    set_version(tree, "9.8.7-dev")
    assert days(tree)[0] == "unreleased" and (tree / DEBIAN).read_text().startswith("freestone (9.8.7~dev-1) UNREL")
    set_version(tree, "9.8.7")
    assert len(set(days(tree))) == 1 and (tree / DEBIAN).read_text().startswith("freestone (9.8.7-1) unstable")
    for old, name in zip(before, (NOTES, DEBIAN), strict=True):
        text = (tree / name).read_text()
        assert text.count("9.8.7") == 1 and text.endswith(old.removeprefix("# Changelog\n"))
