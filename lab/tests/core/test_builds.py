"""Builds take turns, and nobody uses what is just being built."""

import fcntl
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from freestone_lab.core import builds, paths
from freestone_lab.core.errors import UserError
from freestone_lab.host import own_tests
from freestone_lab.host.progress import Done, Progress

# Says so if another one runs, and takes its time.
CMAKE = """#!/bin/sh
case $1 in --preset) exit 0 ;; esac
mkdir busy || echo "two builds at once" >>../clash
sleep 0.3
rmdir busy
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose builds make nothing."""
    for name in ("freestone", "CMakeLists.txt", "CMakePresets.json"):
        shutil.copy(paths.root() / name, tmp_path / name)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cmake", "gcc", "g++", "ninja"):
        (tools / name).write_text(CMAKE)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("FREESTONE_ROOT", str(tmp_path))
    return tmp_path


def test_two_builds_of_a_preset_take_turns(root: Path) -> None:
    running = [subprocess.Popen([str(root / "freestone"), "build"], stderr=subprocess.PIPE) for _ in range(3)]
    said = b"".join(process.communicate()[1] for process in running)
    assert [process.returncode for process in running] == [0, 0, 0], said
    assert not (root / "clash").exists() and not (root.parent / "clash").exists()
    assert b"waiting for another build of release" in said


def test_the_tests_build_under_the_same_lock(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def step(*_: object) -> Done:
        with (root / "build" / "release.lock").open("a") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(True)
        return Done(0, 1.0)

    progress = Progress()
    monkeypatch.setattr(progress, "run", step)
    assert own_tests.build_part(own_tests.PARTS[0], 1, progress).failed == 0 and held


def test_what_is_being_built_is_waited_for(root: Path) -> None:
    (root / "build" / "release").mkdir(parents=True)
    made = root / "build" / "release" / "part"
    made.write_text("half")
    began = threading.Event()

    def build() -> None:
        with builds.lock():
            began.set()
            time.sleep(0.3)
            made.write_text("whole")

    thread = threading.Thread(target=build)
    thread.start()
    began.wait()
    assert builds.built("part").read_text() == "whole"
    thread.join()
    with pytest.raises(UserError, match=r"'\./freestone build absent' makes it"):
        builds.built("absent")
