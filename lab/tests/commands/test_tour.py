"""The first hour with odd programs: every command that starts a program, with every such program, with one that hangs,
in every bad place, and two at once. It takes at most three minutes with the ends by one pid (test_one_pid.py).
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_tools import Done, marked

from freestone_lab.core import paths
from freestone_lab.measure import native
from freestone_lab.trace import recording

pytestmark = [
    pytest.mark.all,
    pytest.mark.skipif(
        not all((paths.build_dir() / name).exists() for name in ("libfreestone.so", recording.WRITER)),
        reason="the library or the recorder is not built",
    ),
]
LIMIT_S = 1200  # what takes longer hangs: a command has a few tenths of a second to do
# What starts CMD and ends with its status, and what measures it and says what was wrong. {}: a file for its output.
PASSING = {"run": "run", "record": "record -o {}.fst", "profile": "profile -o {}.html", "leaks": "leaks --json {}.json"}
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


LIMITS = {"profile": "--for 1s", "leaks": "--for 1s", "compare": "--timeout 1s", "advise": "--timeout 1s"}
# What writes elsewhere ends with 0; what cannot start to write does not start the program.
PLACES = {
    "no rights": {"record": 2, "profile": 2, "leaks": 2, "compare": 0, "advise": 0},
    "full disk": {"record": 2, "profile": 0, "leaks": 0, "compare": 0, "advise": 0},
}
NOBODY = 65534


def words(command: str, output: Path, program: Program) -> list[str]:
    start = [sys.executable, str(paths.root() / "lab"), *COMMANDS[command].format(output).split()]
    return [*start, "--", "/bin/bash", "-c", program.script]


def carried_out(line: list[str], folder: Path, given: str = "", before: tuple[str, ...] = ()) -> Done:
    """The command in its folder. It leaves no process and no file but its output."""
    scratch = folder / "t m p"
    scratch.mkdir(mode=0o1777)
    scratch.chmod(0o1777)
    env = {**os.environ, "TMPDIR": str(scratch), "XDG_STATE_HOME": str(scratch / "state")}
    env["FREESTONE_TEST_MARK"] = str(folder)
    words = [*before, *line]
    done = subprocess.run(words, input=given, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    until = time.monotonic() + LIMIT_S
    while (left := marked(f"FREESTONE_TEST_MARK={folder}")) and time.monotonic() < until:  # `forks away` lives a second
        time.sleep(0.05)
    assert not left
    assert not list(scratch.glob("*freestone-*")) and not list(folder.glob("freestone-*"))
    assert "Traceback" not in done.stderr
    return Done(done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_odd_program_has_its_status_or_is_refused(command: str, name: str, tmp_path: Path) -> None:
    """What measures gives no input, and says so by the program's end; --stdin gives it some."""
    program = PROGRAMS[name]
    done = carried_out(words(command, tmp_path / "out", program), tmp_path, program.given)
    if command in PASSING:  # `run` becomes the program
        assert done.returncode == program.status, done.stderr
        assert not program.given or "got a" in done.stdout
    else:
        assert done.returncode == (2 if program.refused else 0), done.stderr
        assert program.refused in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", LIMITS)
def test_a_program_that_hangs_is_ended_by_its_limit(command: str, tmp_path: Path) -> None:
    """`record --for` ends the recording and not the program: trace/test_recording.py."""
    line = words(command, tmp_path / "out", Program("sleep 300 & sleep 300; wait"))
    done = carried_out([*line[:3], *LIMITS[command].split(), *line[3:]], tmp_path)
    if command in PASSING:
        assert done.returncode == 128 + signal.SIGTERM, done.stderr
    else:
        assert done.returncode == 2
        assert re.search(r"fails under glibc: no end within 1 s$", done.stderr.strip()), done.stderr


@pytest.fixture
def everybodys(tmp_path: Path) -> Iterator[Path]:
    """A folder that the user `nobody` can reach, where this process is not that user."""
    launch = native.tool("launch")  # made before by who may
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        tested = subprocess.run([*nobody(), "test", "-x", str(launch), "-a", "-r", str(paths.root() / "lab")])
        if tested.returncode != 0:
            pytest.skip("another user cannot read this tree")
        yield folder


def nobody() -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_program_without_the_right_to_run_is_refused(command: str, everybodys: Path) -> None:
    program = everybodys / "program"
    program.write_text("#!/bin/sh\n")
    line = [*words(command, everybodys / "out", Program(""))[:-3], str(program)]
    done = carried_out(line, everybodys, before=nobody())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"freestone: '{program}' may not be executed (no x permission)\n"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", PLACES["no rights"])
def test_a_bad_place_is_said_and_what_was_measured_kept(command: str, place: str, everybodys: Path) -> None:
    bad = everybodys / "bad"
    bad.mkdir(0o777)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=777", "tmpfs", str(bad)]
    if place == "no rights":
        bad.chmod(0o555)
    elif subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk cannot be made here")
    else:
        (bad / "fill").write_bytes(bytes(4096))
    try:
        done = carried_out(words(command, bad / "out", Program("echo started")), everybodys, before=nobody())
        assert done.returncode == PLACES[place][command], done.stderr
        assert done.returncode == 0 or "started" not in done.stdout
        assert [line for line in done.stderr.splitlines() if f"{bad}/out." in line and line.startswith("freestone")]
        assert not list(bad.glob("out*")) and not list(bad.glob(".freestone-*"))
        kept = list((everybodys / "t m p/state/freestone").glob("out.*"))
        assert bool(kept) == (done.returncode == 0) and all(path.stat().st_size > 100 for path in kept)
    finally:
        if place == "full disk":
            subprocess.run(["umount", bad], check=True)


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
