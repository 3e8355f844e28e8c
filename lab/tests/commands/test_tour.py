"""The first hour with odd programs: every command that starts a program, with every such program, and two at once.

Ends by one pid are in test_one_pid.py, places that fail in test_output_folders.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.trace import recording

pytestmark = pytest.mark.skipif(
    not all((paths.build_dir() / name).exists() for name in ("libfreestone.so", recording.WRITER)),
    reason="the library or the recorder is not built",
)
LIMIT_S = 60  # of a command that has a few tenths of a second to do
# What starts CMD and ends with its status, and what measures it and says what was wrong. {}: a file for its output.
PASSING = {
    "run": "run",
    "record": "record -o {}.fst",
    "profile": "profile -o {}.html",
    "leaks": "leaks --json {}.json",
}
MEASURING = {
    "compare": "compare --only freestone --rounds 1 --json {}.json",
    "advise": "advise --only freestone --runs 1 --json {}.json",
}
COMMANDS = {**PASSING, **MEASURING}


@dataclass(frozen=True)
class Program:
    """A script of the shell, the status it ends with, what measuring it says if that refuses it, and its input."""

    script: str
    status: int = 0
    refused: str = ""
    given: str = ""


PROGRAMS = {
    "ends with 3": Program("exit 3", 3, "exit status 3"),
    "crashes": Program("kill -SEGV $$", 128 + signal.SIGSEGV, "SIGSEGV"),
    "forks away": Program("(sleep 1 &) >/dev/null 2>&1"),
    "needs input": Program("read -r word && echo got $word", 1, "exit status 1"),
    "is given input": Program("read -r word && echo got $word", 0, "exit status 1", "a\n"),
}


def words(command: str, output: Path, program: Program) -> list[str]:
    start = [sys.executable, str(paths.root() / "lab"), *COMMANDS[command].format(output).split()]
    return [*start, "--", "/bin/bash", "-c", program.script]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_odd_program_has_its_status_or_is_refused(command: str, name: str, tmp_path: Path) -> None:
    """What measures gives no input, and says so by the program's end; --stdin gives it some."""
    program = PROGRAMS[name]
    line = words(command, tmp_path / "out", program)
    done = subprocess.run(line, input=program.given, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert "Traceback" not in done.stderr
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode  # `run` becomes the program
    if command in PASSING:
        assert status == program.status, done.stderr
        assert not program.given or "got a" in done.stdout
    else:
        assert status == (2 if program.refused else 0), done.stderr
        assert program.refused in done.stderr


@pytest.mark.parametrize("command", ["profile", "leaks", "compare"])
def test_two_at_once_in_one_folder_do_not_meet(command: str, tmp_path: Path) -> None:
    """`record` into one file is refused: trace/test_recording.py."""
    lines = [words(command, tmp_path / name, PROGRAMS["forks away"]) for name in ("a", "b")]
    both = [subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for line in lines]
    for one in both:
        said = one.communicate(timeout=LIMIT_S)[1]
        assert one.returncode == 0, said
    suffix = Path(COMMANDS[command]).suffix
    assert all((tmp_path / f"{name}{suffix}").stat().st_size > 100 for name in ("a", "b"))
