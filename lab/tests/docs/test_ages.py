"""A page names the version of its figures; the hash decides whether they are of a release's code."""

import gzip
import json
from pathlib import Path

import pytest

from freestone_lab.core import measured
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


def test_a_page_names_the_version_of_the_result_that_it_cites(root: Path) -> None:
    store(root, "0.0.9")
    assert ages.unnamed(root) == [f"README.md cites {RESULT} and does not say: of version 0.0.9, commit abc"]
    (root / "README.md").write_text(f"{CITES} These figures are of version 0.0.9-dev, and of version 0.0.91.")
    assert len(ages.unnamed(root)) == 1
    (root / "README.md").write_text(f"{CITES} {ages.note(root, RESULT)}")
    assert ages.unnamed(root) == []


def test_results_of_one_version_and_commit_are_named_together(root: Path) -> None:
    store(root, "0.0.9")
    other = Path("docs/results/other.json")
    (root / other).write_text('{"version": "1.0.0-dev"}')
    one = f"These figures are of version 0.0.9, commit abc (`{RESULT}`"
    assert ages.note(root, RESULT, RESULT) == f"{one}, `{RESULT}`)."
    assert " ".join(ages.note(root, RESULT, other).split()) == f"{one}); of version 1.0.0-dev (`{other}`)."


@pytest.mark.parametrize("changed", ["allocator/src/a.cc", "lab/workloads/src/b.cc"])
def test_only_a_release_asks_for_results_of_its_code(root: Path, changed: str) -> None:
    store(root, "1.0.0")
    before = ages.note(root, RESULT)
    (root / "README.md").write_text(f"{CITES} {before}")
    assert ages.other_than(root, "1.0.0") == []
    (root / changed).write_text(f"{changed},")
    assert (ages.note(root, RESULT), ages.unnamed(root)) == (before, [])
    assert ages.other_than(root, "1.0.0") == [
        f"{RESULT} is of version 1.0.0, commit abc and of other code than this tree"
    ]


def test_a_release_asks_for_results_of_its_version(root: Path) -> None:
    store(root, "1.0.0-dev")
    assert ages.other_than(root, "1.0.0") == [f"{RESULT} is of version 1.0.0-dev, commit abc"]


def test_a_report_of_pytest_says_it_in_properties(root: Path) -> None:
    result, code = Path("docs/results/recording.xml"), json.dumps(measured.code(root)).replace('"', "&quot;")
    (root / result).write_text(f'<s><property name="version" value="0.0.9"/><property name="code" value="{code}"/></s>')
    assert ages.note(root, result) == f"These figures are of version 0.0.9 (`{result}`)."
    assert ages.of_this_code(root, result)
    (root / "allocator/src/a.cc").write_text("other")
    assert not ages.of_this_code(root, result)


def test_a_change_of_anything_else_is_not(root: Path) -> None:
    store(root, "1.0.0")
    (root / "allocator/tests").mkdir()
    (root / "allocator/tests/t.cc").write_text("a test")
    assert ages.other_than(root, "1.0.0") == []


def test_a_result_that_names_no_code_is_of_the_first_version(root: Path) -> None:
    (root / "docs/results/torture.json").write_text("{}")
    (root / "docs/TORTURE.md").write_text("`docs/results/torture.json`")
    ages._stamp.cache_clear()
    assert [line.split(" of version ")[1] for line in ages.unnamed(root)] == [ages.UNSTAMPED]
