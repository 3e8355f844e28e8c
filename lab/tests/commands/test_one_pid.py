"""A supervisor knows one process. Whatever it sends to that one, nothing that a command started stays. A hangup that is
ignored, as under nohup, ends nothing.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_tools import CLI, marked

from freestone_lab.core import paths
from freestone_lab.trace import events, recording

pytestmark = pytest.mark.skipif(not (paths.build_dir() / recording.WRITER).exists(), reason="the recorder is not built")
PROGRAM = ["sh", "-c", "sleep 400 & trap 'exit 3' TERM INT HUP; sleep 300 & wait; exit 4"]
COMMANDS = {
    "record": ["record", "-o", "t.fst", "--", *PROGRAM],
    "profile": ["profile", "-o", "p.html", "--", *PROGRAM],
    "leaks": ["leaks", "--", *PROGRAM],
    "compare": ["compare", "--rounds", "2", "--only", "glibc", "--", *PROGRAM],
    "advise": ["advise", "--only", "glibc", "--", *PROGRAM],
    "prepare": ["compare", "--rounds", "2", "--only", "glibc", "--prepare", "sleep 300", "--", "true"],
}
HANGS_S = 1200
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


@contextlib.contextmanager
def started(folder: Path, program: bytes, words: list[str], *before: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose program, known by how its command line begins, runs. Nothing of it stays."""
    mark = f"FREESTONE_TEST_MARK={folder}"
    env = {**os.environ, "FREESTONE_TEST_MARK": str(folder), "TMPDIR": str(folder)}
    argv = [*before, *CLI, *words]
    with subprocess.Popen(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as one:
        try:
            until = time.monotonic() + HANGS_S
            while not marked(mark, program) and one.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            assert one.poll() is None and marked(mark, program)
            yield one
        finally:
            for pid in marked(mark):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.all
@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_to_one_process_leaves_nothing_behind(command: str, number: signal.Signals, tmp_path: Path) -> None:
    mark = f"FREESTONE_TEST_MARK={tmp_path}"
    with started(tmp_path, b"sleep\x00300", COMMANDS[command]) as one:
        one.send_signal(number)
        until = time.monotonic() + HANGS_S
        while marked(mark) and time.monotonic() < until:
            time.sleep(0.05)
        assert not marked(mark)
        if command == "record" and number != signal.SIGKILL:
            assert one.wait() == 3
        assert command != "record" or events.read(tmp_path / "t.fst").summary["end"] == "signal"


@pytest.mark.parametrize("command", [name for name, words in COMMANDS.items() if words[-1] == PROGRAM[-1]])
def test_a_hangup_that_is_ignored_ends_nothing(command: str, tmp_path: Path) -> None:
    """A terminal sends it to the command and to all that it started."""
    words = [*COMMANDS[command][:-1], f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"]
    with started(tmp_path, b"sh\x00-c\x00until", words, "env", "--ignore-signal=HUP") as one:
        for pid in marked(f"FREESTONE_TEST_MARK={tmp_path}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)
        (tmp_path / "go").touch()
        assert one.stderr is not None
        said = one.stderr.read()
        assert one.wait() in ((0, 1) if command in ("compare", "advise") else (0,)), said  # 1: nothing is better
        assert b"interrupted" not in said
