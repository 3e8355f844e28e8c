"""packaging/release.sh makes a release of what is committed, and refuses what no release should be made of."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_tools import clone_into, freestone

from freestone_lab.commands import docs
from freestone_lab.core import measured, paths

pytestmark = pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
VERSION = paths.version().removesuffix("-dev")
SIZES = "allocator/tests/structure/size_test.py"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone in which the version is a release's, whose limits of size are its own, and all is committed."""
    folder = tmp_path / "clone"
    clone_into(folder)
    set_version(folder, VERSION)
    commit_with_sizes(folder)
    return folder


def set_version(clone: Path, version: str) -> None:
    subprocess.run([sys.executable, str(clone / "packaging" / "set_version.py"), version], check=True)


def measure(clone: Path) -> None:
    """Each stored result says that it is of the clone's version and code; the pages name it."""
    stamp: dict[str, Any] = {"lab": VERSION, "version": VERSION, "code": measured.code(clone)}
    for path in (clone / "docs" / "results").rglob("*.*"):
        packed = path.suffix == ".gz"
        data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
        if path.suffix == ".xml":
            report = ElementTree.fromstring(data)
            for said in report.iter("property"):
                if (name := said.get("name")) in stamp:
                    said.set("value", VERSION if name == "version" else json.dumps(stamp["code"]))
            data = ElementTree.tostring(report)
        else:
            found = json.loads(data)
            found.get("fingerprint", found).update(stamp)
            data = json.dumps(found).encode()
        path.write_bytes(gzip.compress(data) if packed else data)
    docs.write(clone)


def commit(folder: Path) -> None:
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    who = ("-c", "user.name=test", "-c", "user.email=test@freestone.invalid")
    subprocess.run(["git", *who, "commit", "-q", "--no-verify", "--allow-empty", "-m", "test"], cwd=folder, check=True)


def commit_with_sizes(folder: Path) -> None:
    commit(folder)  # what is counted is what git tracks
    subprocess.run([sys.executable, folder / SIZES, folder, "--write"], stdout=subprocess.DEVNULL, check=True)
    commit(folder)


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


def test_a_development_version_is_refused(clone: Path) -> None:
    set_version(clone, f"{VERSION}-dev")
    commit(clone)
    assert_refused(clone, f"first packaging/set_version.py {VERSION}")


def test_a_comma_in_a_comment_of_the_allocator_is_refused_in_a_release_only(clone: Path) -> None:
    for drawn in ("aged", "full", "mitigations", "traces"):  # to draw these takes long
        (clone / "docs" / "results" / f"{drawn}.json.gz").unlink()
    measure(clone)
    assert freestone(clone, "docs", "--release", FREESTONE_ROOT=str(clone)).returncode == 0
    source = clone / "allocator" / "src" / "abi" / "control.cc"
    source.write_text(source.read_text().replace("// Room", "// Room,", 1))
    commit_with_sizes(clone)
    checked = freestone(clone, "docs", "--check", FREESTONE_ROOT=str(clone))
    assert (checked.returncode, checked.stdout) == (0, "")
    assert_refused(clone, f"docs/results/torture.json is of version {VERSION} and of other code")


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
    measure(clone)
    commit_with_sizes(clone)
    done = release(clone)
    assert done.returncode == 0, done.stdout + done.stderr
    out, machine = clone.parent / "out", os.uname().machine
    made = {path.name for path in out.iterdir()}
    name = f"freestone-{VERSION}"
    listed, told = f"{name}-linux-{machine}.spdx.json", {f"SHA256SUMS-{machine}", "notes.md"}
    packages = {f"{name}.crate", f"{name}.tar.gz"}
    packages |= {f"{name}-linux-{machine}.{x}" for x in ("tar.gz", "Containerfile")}
    packages |= {file for file in made if file.endswith((".deb", ".whl"))}
    assert made == packages | {listed} | told and len(packages) == 8
    contents = json.loads((out / listed).read_text())["files"]
    assert {file["fileName"].removeprefix("./") for file in contents} == packages
    sums = {tuple(line.split()) for line in (out / f"SHA256SUMS-{machine}").read_text().splitlines()}
    assert sums == {(hashlib.sha256((out / file).read_bytes()).hexdigest(), file) for file in packages | {listed}}
    heading, _, notes = (clone / "CHANGELOG.md").read_text().split("\n## ")[1].partition("\n")
    assert heading.startswith(f"{VERSION} (") and notes.strip() == (out / "notes.md").read_text().strip() != ""
