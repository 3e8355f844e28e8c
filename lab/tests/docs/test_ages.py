"""Whether a page's figures are of this tree: the hash decides, and an older version must be named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from freestone_lab.core import measured, paths
from freestone_lab.docs import ages

RESULT = Path("docs/results/full.json.gz")
CITES = "Made by `freestone bench full --json docs/results/full.json.gz`."


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with an allocator, a workload and a page."""
    for name in ("allocator/src/a.cc", "lab/workloads/src/b.cc", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "README.md").write_text(CITES)
    return tmp_path


def store(root: Path, version: str) -> None:
    fingerprint = {"lab": version, "commit": "abc+", "code": measured.code(root)}
    (root / RESULT).write_bytes(gzip.compress(json.dumps({"fingerprint": fingerprint}).encode()))
    ages._stamp.cache_clear()


def test_figures_of_the_same_code_need_no_word(root: Path) -> None:
    store(root, paths.version())
    assert ages.stale(root) == []
    assert ages.note(root, RESULT) == ""


@pytest.mark.parametrize("changed", ["allocator/src/a.cc", "lab/workloads/src/b.cc"])
def test_a_change_of_what_was_measured_is_noticed(root: Path, changed: str) -> None:
    store(root, "0.0.9")
    (root / changed).write_text("other")
    assert len(ages.stale(root)) == 1 and "full.json.gz of version 0.0.9" in ages.stale(root)[0]
    assert ages.note(root, RESULT) == "These figures are of version 0.0.9, commit abc."
    (root / "README.md").write_text(f"{CITES} {ages.note(root, RESULT)}")
    assert ages.stale(root) == []


def test_a_report_of_pytest_says_it_in_properties(root: Path) -> None:
    result, code = Path("docs/results/recording.xml"), json.dumps(measured.code(root)).replace('"', "&quot;")
    (root / result).write_text(f'<s><property name="version" value="0.0.9"/><property name="code" value="{code}"/></s>')
    assert ages.note(root, result) == ""
    (root / "allocator/src/a.cc").write_text("other")
    assert ages.note(root, result) == "These figures are of version 0.0.9."


def test_a_change_of_anything_else_is_not(root: Path) -> None:
    store(root, paths.version())
    (root / "allocator/tests").mkdir()
    (root / "allocator/tests/t.cc").write_text("a test")
    assert ages.stale(root) == []


def test_figures_of_this_version_must_be_of_this_code(root: Path) -> None:
    store(root, paths.version())
    (root / "allocator/src/a.cc").write_text("other")
    (root / "README.md").write_text(f"{CITES} {ages.note(root, RESULT)}")
    assert len(ages.stale(root)) == 1


def test_a_result_that_names_no_code_is_of_the_first_version(root: Path) -> None:
    (root / "docs/results/torture.json").write_text("{}")
    (root / "docs/TORTURE.md").write_text("`docs/results/torture.json`")
    ages._stamp.cache_clear()
    assert [line.split(" of version ")[1][:5] for line in ages.stale(root)] == [ages.UNSTAMPED]
