"""Files go where they were asked for, or somewhere that works; nothing that was measured is lost."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from freestone_lab.core import outputs


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "freestone"


@pytest.mark.parametrize("bad", ["/proc/none/r.json", "/dev/null/r.json"])
def test_a_place_that_cannot_be_written_is_said_and_replaced(bad: str, state: Path) -> None:
    said: list[str] = []
    assert outputs.usable(Path(bad), said.append) == state / "r.json"
    assert len(said) == 1 and bad in said[0] and str(state) in said[0]


def test_a_folder_is_no_file(tmp_path: Path, state: Path) -> None:
    assert outputs.usable(tmp_path, lambda _: None) == state / tmp_path.name


def test_a_good_place_is_taken_and_left_empty(tmp_path: Path) -> None:
    path = tmp_path / "new" / "r.json"
    assert outputs.usable(path, pytest.fail) == path
    assert list(path.parent.iterdir()) == []


def test_a_disk_that_fills_up_loses_nothing(tmp_path: Path, state: Path) -> None:
    said: list[str] = []

    def make(path: Path) -> None:
        if path.parent == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_text("kept")

    assert outputs.write(tmp_path / "r.json", make, said.append) == state / "r.json"
    assert (state / "r.json").read_text() == "kept"
    assert "No space left" in said[0]


def test_when_no_place_works_it_is_said(tmp_path: Path) -> None:
    def make(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    assert outputs.write(tmp_path / "r.json", make, said.append) is None
    assert len(said) == 3


def test_results_lie_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert outputs.new_name("advise").parent == tmp_path


def test_a_full_disk_leaves_the_old_file_and_its_path_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    outputs.write_whole(path, "old")

    def full(place: Path, data: bytes) -> int:
        with place.open("wb") as file:
            file.write(data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as failed:
        outputs.write_whole(path, "new")
    assert failed.value.filename == str(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    outputs.write_whole(pipe, "text")
    assert os.read(held, 10) == b"text" and pipe.is_fifo()
    os.close(held)
    link.symlink_to(file)
    outputs.write_whole(link, "text")
    assert link.is_symlink() and file.read_text() == "text"


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the folder of a run that lives, nor one that somebody else named so."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os; from freestone_lab.core.outputs import Scratch\n"
        "s = Scratch('a'); os.write(1, s.name.encode()); os._exit(9)"
    )
    killed = Path(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                 env={**os.environ, "TMPDIR": str(tmp_path)}).stdout.strip())  # fmt: skip
    other = tmp_path / "freestone-clone"
    other.mkdir()
    with outputs.Scratch("b") as lives:
        for folder in (killed, other, Path(lives)):
            assert folder.is_dir()
            os.utime(folder, (0, 0))
        with outputs.Scratch("c") as last:
            assert sorted(tmp_path.iterdir()) == sorted((other, Path(lives), Path(last)))
    assert list(tmp_path.iterdir()) == [other]
