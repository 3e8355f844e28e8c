"""Signals that end the program: SIGTERM and SIGHUP act like Ctrl-C, so that what was measured is kept.

Whoever ends a command knows one process, which `guarded` makes the parent of the one that works. So even SIGKILL leaves
one that ends in order.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
PR_SET_PDEATHSIG = 1


class Ended(KeyboardInterrupt):
    """A signal that ends the program; `status` is its exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the context, it handles these signals. One that is ignored, as SIGHUP under nohup, stays ignored."""
    before = {number: signal.getsignal(number) for number in ENDS}
    try:
        for number, was in before.items():
            if was != signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


@contextlib.contextmanager
def ends_are_kept() -> Iterator[list[int]]:
    """Within the context, the first such signal raises Ended. The list gets the exit status for that signal.

    What this process had started by then is gone afterwards.
    """
    came: list[int] = []
    started: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        came.append(128 + number)
        if len(came) == 1:
            started.extend(descendants(os.getpid()))
            raise Ended(number)

    try:
        with handled(end):
            yield came
    finally:
        for pid in started:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, parents before children."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *descendants(int(child))]
    return found


def wait(pid: int) -> int:
    """Waits for a child's end and returns its status as subprocess does. A signal to this process goes on to the child.

    The terminal's Ctrl-C does not: the terminal sends it to the child too.
    """
    ends = {number for number in ENDS if signal.getsignal(number) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*ends, signal.SIGCHLD})
    try:
        while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
            came = signal.sigtimedwait({*ends, signal.SIGCHLD}, 1)
            if came is not None and came.si_signo in ends and came.si_code <= 0:
                os.kill(pid, came.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return os.waitstatus_to_exitcode(ended[1])


def guarded(work: Callable[[], int]) -> int:
    """Does the work in a child, which gets SIGTERM when this process dies; returns the work's exit status."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        status = wait(child)
        return status if status >= 0 else 128 - status
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with ends_are_kept() as ended:
        status = work()
    return ended[0] if ended else status
