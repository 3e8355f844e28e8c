"""packaging/release.sh makes a release of what is committed, and refuses what no release should be made of."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_tools import clone_into

from freestone_lab.core import paths

pytestmark = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
VERSION = paths.version()
SIZES = "allocator/tests/structure/size_test.py"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone in which all is committed, and whose limits of size are its own."""
    folder = tmp_path / "clone"
    clone_into(folder)
    commit(folder)
    subprocess.run([sys.executable, folder / SIZES, folder, "--write"], stdout=subprocess.DEVNULL, check=True)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    who = ("-c", "user.name=test", "-c", "user.email=test@freestone.invalid")
    subprocess.run(["git", *who, "commit", "-q", "--no-verify", "--allow-empty", "-m", "test"], cwd=folder, check=True)


def release(clone: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FREESTONE", "PYTHON"))}
    if shutil.which("ccache"):
        env |= {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX")}
        env |= {"CCACHE_BASEDIR": str(clone), "CCACHE_NOHASHDIR": "1"}
    command = [str(clone / "packaging" / "release.sh"), str(clone.parent / "out")]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def assert_refused(clone: Path, why: str) -> None:
    done = release(clone)
    assert done.returncode == 1 and why in done.stderr, done.stdout + done.stderr
    assert list((clone.parent / "out").iterdir()) == []


def test_a_tree_with_changes_is_refused(clone: Path) -> None:
    (clone / "new.txt").write_text("not committed\n")
    assert_refused(clone, "new.txt")


def test_a_version_without_notes_is_refused(clone: Path) -> None:
    page = clone / "CHANGELOG.md"
    page.write_text(page.read_text().replace(f"## {VERSION}", "## 0.0.9"))
    commit(clone)
    assert_refused(clone, f"no notes for {VERSION}")


def test_a_stale_document_is_refused(clone: Path) -> None:
    page = clone / "docs" / "TUNING.md"
    page.write_text(page.read_text().replace("| `dirty_bytes` | `1m` |", "| `dirty_bytes` | `9m` |"))
    commit(clone)
    assert_refused(clone, "run ./freestone docs")


def test_limits_of_size_that_are_those_of_another_tree_are_refused(clone: Path) -> None:
    (clone / "new.txt").write_text("a line\n")
    commit(clone)
    assert_refused(clone, "commit allocator/tests/structure/size.txt")


def test_a_folder_that_holds_something_is_refused(clone: Path) -> None:
    (clone.parent / "out").mkdir()
    (clone.parent / "out" / "old.deb").touch()
    done = release(clone)
    assert done.returncode == 1 and "not empty" in done.stderr


def test_the_list_of_contents_is_valid(tmp_path: Path) -> None:
    (tmp_path / "a.deb").write_text("a")
    command = [sys.executable, str(paths.root() / "packaging" / "spdx.py"), VERSION, str(tmp_path / "a.deb")]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    names = {listed["SPDXID"], *(part["SPDXID"] for part in listed["packages"] + listed["files"])}
    assert [name for name in names if not re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name)] == []
    assert [sum["algorithm"] for sum in listed["files"][0]["checksums"]] == ["SHA1", "SHA256"]
    for related in listed["relationships"]:
        assert {related["spdxElementId"], related["relatedSpdxElement"]} <= names


@pytest.mark.long
def test_a_release_holds_every_package_and_says_what_each_is(clone: Path) -> None:
    done = release(clone)
    assert done.returncode == 0, done.stdout + done.stderr
    out, machine = clone.parent / "out", os.uname().machine
    made = {path.name for path in out.iterdir()}
    name = f"freestone-{VERSION}"
    listed, told = f"{name}-linux-{machine}.spdx.json", {f"SHA256SUMS-{machine}", "notes.md"}
    packages = {
        f"{name}.crate",
        f"{name}.tar.gz",
        *(f"{name}-linux-{machine}.{x}" for x in ("tar.gz", "Containerfile")),
    }
    packages |= {file for file in made if file.endswith((".deb", ".whl"))}
    assert made == packages | {listed} | told and len(packages) == 8
    contents = json.loads((out / listed).read_text())["files"]
    assert {file["fileName"].removeprefix("./") for file in contents} == packages
    sums = {tuple(line.split()) for line in (out / f"SHA256SUMS-{machine}").read_text().splitlines()}
    assert sums == {(hashlib.sha256((out / file).read_bytes()).hexdigest(), file) for file in packages | {listed}}
    notes = (out / "notes.md").read_text()
    assert notes in (clone / "CHANGELOG.md").read_text() and "**Hardened build.**" in notes
    assert "## " not in notes
