"""Runs a program so that Ctrl-C reaches this tool first, which takes its last look before the program ends.

The program runs in its own process group, as in a shell. If it wants the terminal's input, it gets the terminal. Then
Ctrl-C goes to the program, as for any interactive program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 5.0  # from the signal until a program that goes on is ended by force; supervisors wait for 10 s


def run(argv: Sequence[str], program: Path, env: Mapping[str, str], last_look: Callable[[list[int]], None]) -> int:
    """Runs the program to its end and returns its status as subprocess does.

    If this process gets SIGINT, SIGTERM or SIGHUP, it calls `last_look` with the processes of the program's group, and
    then sends the group that signal, and nothing of it stays. A signal that this process ignores, as SIGHUP under
    nohup, stays ignored.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        asked.append(number)

    before = {n: signal.getsignal(n) for n in ENDING}
    with _terminal_can_be_lent():
        try:
            for number, handler in before.items():
                if handler != signal.SIG_IGN:
                    signal.signal(number, ask)
            child = subprocess.Popen(list(argv), executable=program, env=dict(env), process_group=0)
            status = _wait(child.pid, asked, last_look)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            _take_terminal(os.getpgrp())
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode


def _wait(pid: int, asked: list[int], last_look: Callable[[list[int]], None]) -> int:
    until = ended = None
    while ended is None or (until is not None and group(pid) and time.monotonic() < until):
        done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED) if ended is None else (0, 0)
        if done and os.WIFSTOPPED(status):
            if os.WSTOPSIG(status) in (signal.SIGTTIN, signal.SIGTTOU):
                _take_terminal(pid)
                os.killpg(pid, signal.SIGCONT)
        elif done:
            ended = status
        if asked:
            number = asked[0]
            if until is None:
                last_look(group(pid))
                until = time.monotonic() + GRACE_S
            asked.clear()
            _send(pid, number)
        if until is not None and time.monotonic() > until:
            _send(pid, signal.SIGKILL)
        time.sleep(0.01)
    if until is not None:
        _send(pid, signal.SIGKILL)
    return ended


def _send(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def group(leader: int) -> list[int]:
    """The processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return sorted(found)


@contextlib.contextmanager
def _terminal_can_be_lent() -> Iterator[None]:
    """Changing the terminal's foreground group from the background must not stop this process."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTTOU, before)


def _take_terminal(process_group: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        if os.isatty(sys.stdin.fileno()):
            os.tcsetpgrp(sys.stdin.fileno(), process_group)
