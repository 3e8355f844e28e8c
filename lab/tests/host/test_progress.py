"""What is shown while programs build and test: every line in a file; on a terminal what counts is one line."""

import contextlib
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.host.progress import Progress

NINJA = "[3/620] Building CXX object a.o"
CTEST = ["        Start  55: fault.x.fast", "  7/244 Test  #55: fault.x.fast ......   Passed   60.84 sec"]
FAILS = "  8/244 Test  #56: fault.y.fast ......***Failed   1.00 sec"
DOTS = "..........s............................................................. [ 58%]"
SAID = "a warning"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cache_dir", lambda: tmp_path / "cache")


def shown(terminal: bool, tmp_path: Path, at_end: bool = False) -> str:
    """What a program's lines become."""
    text = "\n".join([NINJA, *CTEST, FAILS, DOTS, SAID, "no end"])
    command = [sys.executable, "-c", f"print({text!r}, end='')"]
    if not terminal:
        plain = io.StringIO()
        Progress(plain).run("testing", command, tmp_path, at_end=at_end)
        return plain.getvalue()
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        Progress(stream).run("testing", command, tmp_path, at_end=at_end)
    written = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(ours, 4096):
            written += more
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("at_end", [False, True])
def test_a_file_gets_every_line(tmp_path: Path, at_end: bool) -> None:
    lines = ["freestone: testing", NINJA, *CTEST, FAILS, DOTS, SAID, "no end", ""]
    assert shown(False, tmp_path, at_end).split("\n") == lines


def test_a_terminal_gets_one_line_of_counts_and_the_rest(tmp_path: Path) -> None:
    text = shown(True, tmp_path)
    assert "testing: 3 of 620" in text and "testing: 7 of 244" in text and "testing: 58 %" in text
    kept = [line.rpartition("\033[K")[2] for line in text.split("\n")]
    assert [line for line in kept if line in (NINJA, *CTEST, FAILS, DOTS, SAID, "no end")] == [FAILS, SAID, "no end"]


def test_status_and_processor_time_are_those_of_the_program_and_its_children(tmp_path: Path) -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    twice = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}]); sys.exit(3)"
    done = Progress(io.StringIO()).run("testing", [sys.executable, "-c", twice], tmp_path)
    assert done.status == 3 and done.cpu_seconds >= 0.3
    done = Progress(io.StringIO()).run("testing", ["sh", "-c", "kill -9 $$"], tmp_path)
    assert done.status == -9


def test_a_process_that_stays_behind_does_not_hold_up_the_end(tmp_path: Path) -> None:
    done = Progress(io.StringIO()).run("testing", ["sh", "-c", "sleep 600 & echo $! >pid"], tmp_path)
    subprocess.run(["kill", (tmp_path / "pid").read_text().strip()], check=True)
    assert done.status == 0
