"""The processes of the attack suite. Each runs in its own group under a time limit, and none is left behind.

An attack may hang, write without end, close its output and stay, or leave a child that holds the pipe. The limit ends
all of these. `freestone-attack` asks the kernel to kill it if the runner dies, however it dies. If the runner is
interrupted and lives on, `attacking` ends what still runs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Iterator, Sequence

from freestone_lab.attacks.judgement import Outcome

_OUTPUT_LIMIT = 1 << 16
_lock = threading.Lock()
_running: set[int] = set()
_stopping = threading.Event()


class Stopped(Exception):
    """The run was interrupted, so no further attack starts."""


def spawn(command: Sequence[str], env: dict[str, str], limit_s: float) -> Outcome:
    """Runs one process of `freestone-attack` to its end or to the limit. Keeps both outputs, in the order written."""
    read_end, write_end = os.pipe()
    pid = 0
    deadline = time.monotonic() + limit_s
    try:
        try:
            pid = _start(command, env, write_end)
        finally:
            os.close(write_end)
        text, timed_out = _collect(read_end, deadline)
        timed_out = timed_out or not _ends_before(pid, deadline)
    except BaseException:
        if pid:
            _reap(pid, kill=True)
        raise
    finally:
        os.close(read_end)
    status = _reap(pid, kill=timed_out)
    if _stopping.is_set():
        raise Stopped
    return Outcome(os.waitstatus_to_exitcode(status), text.decode(errors="replace"), timed_out)


def _start(command: Sequence[str], env: dict[str, str], write_end: int) -> int:
    with _lock:
        if _stopping.is_set():
            raise Stopped
        pid = os.posix_spawn(
            command[0],
            [*command, "--parent", str(os.getpid())],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, write_end, 1),
                (os.POSIX_SPAWN_DUP2, write_end, 2),
            ],
            setpgroup=0,
        )
        _running.add(pid)
        return pid


def _collect(read_end: int, deadline: float) -> tuple[bytearray, bool]:
    """Reads until every writer has closed the pipe. Returns the text, and whether the deadline came first."""
    poll = select.poll()
    poll.register(read_end, select.POLLIN)
    text = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return text, True
        part = os.read(read_end, 65536)
        if not part:
            return text, False
        if len(text) < _OUTPUT_LIMIT:
            text += part


def _ends_before(pid: int, deadline: float) -> bool:
    """Whether the process, which has closed its output, ends before the deadline."""
    end = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(end)


def _reap(pid: int, *, kill: bool) -> int:
    """The wait status of a process that has ended. One that has not is killed now, with its group."""
    if kill:
        _kill(pid)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with _lock:  # until here the number is this process's
        _, status = os.waitpid(pid, 0)
        _running.discard(pid)
    return status


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _stop_all() -> None:
    """Kills every running attack. From now on none starts."""
    with _lock:
        _stopping.set()
        for pid in _running:
            _kill(pid)


@contextlib.contextmanager
def attacking() -> Iterator[None]:
    """Wraps a run of attacks: a crash leaves no core file, and an interruption leaves no process."""
    _stopping.clear()
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, before[1]))
    try:
        yield
    except BaseException:
        _stop_all()
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
