"""Runs a program so that Ctrl-C reaches this tool first, which takes its last look before the program ends.

The program runs in its own process group, as in a shell. If it wants the terminal's input, it gets the terminal. Then
Ctrl-C goes to the program, as for any interactive program.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core import signals
from freestone_lab.heap import names
from freestone_lab.measure import tree

GRACE_S = 5.0  # from the signal until a program that goes on is ended by force; supervisors wait for 10 s


Seen = dict[int, tuple[str | None, str]]


@dataclass(frozen=True)
class Ended:
    """How the program ended, and the program and command line of each process, by number, as last seen."""

    returncode: int  # as subprocess has it
    seen: Seen

    @property
    def status(self) -> int:
        """A shell's exit status: 128 + N for a program that died of signal N."""
        return 128 - self.returncode if self.returncode < 0 else self.returncode

    def left_no(self, what: str, program: str) -> str:
        how = "it left without running its exit handlers (_exit)"
        if self.returncode < 0:
            how = f"it died of {signal.Signals(-self.returncode).name} before its exit"
        return f"'{program}' left no {what}: {how}"


def run(
    argv: Sequence[str],
    program: Path,
    env: Mapping[str, str],
    last_look: Callable[[list[int]], None],
    seconds: float | None = None,
) -> Ended:
    """Runs the program to its end, which SIGTERM brings after `seconds`.

    If this process gets SIGINT, SIGTERM or SIGHUP, it calls `last_look` with the processes of the program's group, and
    then sends the group that signal, and nothing of it stays.
    """
    asked: list[int] = []
    seen: Seen = {}

    def ask(number: int, frame: object) -> None:
        asked.append(number)

    with _terminal_can_be_lent(), signals.handled(ask):
        try:
            child = subprocess.Popen(list(argv), executable=program, env=dict(env), process_group=0)
            status = _wait(child.pid, asked, last_look, seconds, seen)
        finally:
            _take_terminal(os.getpgrp())
    child.returncode = os.waitstatus_to_exitcode(status)
    return Ended(child.returncode, seen)


def _wait(pid: int, asked: list[int], last_look: Callable[[list[int]], None], seconds: float | None, seen: Seen) -> int:
    until = ended = None
    over = math.inf if seconds is None else time.monotonic() + seconds
    while ended is None or (until is not None and group(pid) and time.monotonic() < until):
        now = time.monotonic()
        seen.update((one, looks) for one in (pid, *tree.descendants(pid)) if (looks := look_of(one))[1])
        pause = min(max(0.01, 10 * (time.monotonic() - now)), 0.2)  # reading many threads takes a tenth of the time
        if now > over:
            asked.append(signal.SIGTERM)
            over = math.inf
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
        time.sleep(pause)
    if until is not None:
        _send(pid, signal.SIGKILL)
    return ended


def _send(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def look_of(pid: int) -> tuple[str | None, str]:
    return tree.executable(pid), names.command_line(pid)


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
