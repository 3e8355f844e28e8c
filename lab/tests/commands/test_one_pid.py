"""A supervisor knows one process. Whatever it sends to that one, nothing that a command started stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_tools import marked

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
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


@pytest.mark.all
@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_to_the_one_process_leaves_nothing_behind(
    command: str, number: signal.Signals, tmp_path: Path
) -> None:
    mark = f"FREESTONE_TEST_MARK={tmp_path}"
    env = {**os.environ, "FREESTONE_TEST_MARK": str(tmp_path), "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-m", "freestone_lab.cli", *COMMANDS[command]]
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as one:
        try:
            until = time.monotonic() + 60
            while not marked(mark, b"sleep\x00300") and one.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            assert one.poll() is None and marked(mark, b"sleep\x00300")
            one.send_signal(number)
            until = time.monotonic() + 60
            while marked(mark) and time.monotonic() < until:
                time.sleep(0.05)
            assert not marked(mark)
            if command == "record" and number != signal.SIGKILL:
                assert one.wait() == 3
            assert command != "record" or events.read(tmp_path / "t.fst").summary["end"] == "signal"
        finally:
            for pid in marked(mark):
                os.kill(pid, signal.SIGKILL)
