"""Looks into a process that runs under libfreestone and was not prepared for it.

A look needs the process to do something: to sample, to write down what it sampled, to show its figures. One of its
threads does that in the room for visits (allocator/src/upkeep/visit.h). Stopped by ptrace, it is led there with a stack
of the library's own, answers, waits, is stopped again and gets everything back. Nothing is lost on the way:

- No signal takes part, so it does not matter which signals the process blocks, ignores or handles.
- If this process dies, even of SIGKILL, the thread goes on by itself: the room holds what it needs.
- A system call that the stop interrupted goes on as after any stop of a debugger. A call that the kernel never goes on
  with (epoll_wait, semtimedop, io_uring_enter) ends with EINTR if it has a time limit; threads in other calls go first.

This needs the rights of a debugger: the same user, or root if /proc/sys/kernel/yama/ptrace_scope is not 0. It works on
x86-64 and aarch64.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import platform
import random
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from freestone_lab.core.errors import UserError
from freestone_lab.heap import filters, tracing
from freestone_lab.heap.loaded import find_library, no_right
from freestone_lab.heap.snapshot import keeps_page
from freestone_lab.heap.tracing import Gone, Thread
from freestone_lab.heap.visiting import (
    RENEWALS_AT,
    Answer,
    Errand,
    Visit,
    state_of,
    status_of,
    system_call_of,
    threads_of,
)

PATIENCE_S = 30.0  # how long to look for a thread that can answer
CHOICE_S = 0.2  # how long to insist on one whose system call goes on afterwards
RENEWED_EVERY_S = 1.0
# Errands for which a process makes system calls that malloc does not.
MAKES_CALLS = (Errand.start_profile, Errand.write_profile, Errand.write_leaks, Errand.show_page)

Found = TypeVar("Found")

PPROF, CONFIGURED = 0, 255  # the form of a profile


class Looked(enum.IntEnum):
    profile = 0
    page = 1


class Process:
    """A process that runs under libfreestone. Its threads stop for visits only."""

    def __init__(self, pid: int) -> None:
        name = platform.machine()
        if name not in tracing.MACHINES:
            raise UserError(f"no look into a process is possible on {name}; expected {' or '.join(tracing.MACHINES)}")
        self.machine = tracing.MACHINES[name]
        self.pid = pid
        self.library = find_library(pid)

    def threads(self) -> list[int]:
        return threads_of(self.pid)

    def is_profiling(self) -> bool:
        return self.visit(Errand.is_profiling).result != 0

    def profile(self, form: int = PPROF) -> bytes:
        """What it has sampled so far, as a file."""
        return self._text(Errand.write_profile, form)

    def leaks(self) -> bytes:
        """Which of the blocks that were sampled are lost, as JSON. All threads stand still meanwhile."""
        return self._text(Errand.write_leaks, 0)

    def _text(self, errand: Errand, argument: int) -> bytes:
        answer = self.visit(errand, argument)
        if answer.result != 0:
            raise UserError(f"process {self.pid} has no memory left for the report: {os.strerror(answer.result)}")
        return answer.text

    def visit(self, errand: Errand, argument: int = 0) -> Answer:
        """Lets some thread run the errand.

        Raises UserError when the process has ended, may not be traced, or has no thread that can within PATIENCE_S.
        """
        start = time.monotonic()
        with _undisturbed(), _alone(self.pid, start + PATIENCE_S):
            if errand in MAKES_CALLS:
                self._must_allow_looks()
            while True:
                for tid in self._chosen(any_will_do=time.monotonic() > start + CHOICE_S):
                    answer = self._visit_on(tid, errand, argument)
                    if answer is None or answer.result == errno.EBUSY:
                        continue
                    if answer.result == errno.ENOSYS:
                        raise UserError(f"process {self.pid} has switched libfreestone off, or allocated nothing yet")
                    return answer
                if time.monotonic() > start + PATIENCE_S:
                    tracer = status_of(self.pid, self.pid, "TracerPid")
                    why = f"process {tracer} traces it" if tracer not in ("", "0") else "no thread can answer"
                    raise UserError(f"process {self.pid} cannot be looked at: {why}")
                time.sleep(0.001)

    def _must_allow_looks(self) -> None:
        """A program that filters its system calls (seccomp) may end at one that a look needs."""
        for tid in self.threads():
            if status_of(self.pid, tid, "Seccomp") in ("", "0") or filters.are_ours(self.pid, tid):
                continue
            with suppress(Gone):
                if reason := tracing.in_own_thread(partial(filters.refusal, Thread(tid, self.machine))):
                    raise UserError(f"process {self.pid} filters its system calls, and {reason}")

    def _chosen(self, *, any_will_do: bool) -> list[int]:
        """Its threads, those that wait first. One that cannot be stopped now is left out."""
        ranked = []
        for tid in self.threads():
            state = state_of(self.pid, tid)
            if state in ("", "D", "Z", "X", "x"):
                continue
            disturbed = system_call_of(self.pid, tid)[0] in self.machine.never_again
            if any_will_do or not disturbed:
                ranked.append((disturbed, state == "R", tid))
        return [tid for _, _, tid in sorted(ranked)]

    def _visit_on(self, tid: int, errand: Errand, argument: int) -> Answer | None:
        try:
            return tracing.in_own_thread(lambda: Visit(self.pid, tid, self.machine, self.library).run(errand, argument))
        except Gone:
            return None
        except PermissionError as error:
            if not tracing.may_be_traced(tid):
                raise no_right(self.pid) from error
            return None
        except OSError as error:
            if error.errno in (errno.EIO, errno.ESRCH, errno.EPERM, errno.ENOENT):  # its memory is gone
                return None
            raise


@contextmanager
def _alone(pid: int, until: float) -> Iterator[None]:
    """Excludes other lookers meanwhile, in any container: they all lock the same namespace. The kernel undoes it."""
    try:
        file = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UserError(f"process {pid} has ended") from error
    except PermissionError as error:
        raise no_right(pid) from error
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise UserError(f"process {pid} cannot be looked at: another look goes on") from error
                time.sleep(0.002)
        yield
    finally:
        os.close(file)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays Ctrl-C between a stop and its undoing until afterwards."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def renewed(process: Process, what: Looked) -> Iterator[None]:
    """Says to the process that somebody still looks. It ends the look by itself some seconds after the last time."""
    place = process.library.room + RENEWALS_AT + 4 * what
    over = threading.Event()

    def renew() -> None:
        with suppress(OSError):
            memory = os.open(f"/proc/{process.pid}/mem", os.O_RDWR | os.O_CLOEXEC)
            try:
                while os.pwrite(memory, struct.pack("=I", random.getrandbits(32)), place) and not over.wait(
                    RENEWED_EVERY_S
                ):
                    pass
            finally:
                os.close(memory)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}/task").exists()


@contextmanager
def look_until(pids: Sequence[int], seconds: float | None) -> Iterator[Callable[[], None]]:
    """Yields a function that waits until the time is over, the processes have ended, or Ctrl-C, SIGTERM or SIGHUP came.

    Within the context these signals end the look and nothing else. They count from its beginning.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        asked.append(number)

    def wait() -> None:
        until = None if seconds is None else time.monotonic() + seconds
        while not asked and any(map(_runs, pids)) and (until is None or time.monotonic() < until):
            time.sleep(0.02)

    before = {n: signal.signal(n, ask) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sampled(process: Process, sample_bytes: int) -> Iterator[bool]:
    """Profiles the process meanwhile and leaves it as before. Yields False if a profile runs already: it goes on."""
    with renewed(process, Looked.profile):
        own = process.visit(Errand.start_profile, sample_bytes).result == 0
        try:
            yield own
        finally:
            if own and _runs(process.pid):
                with suppress(UserError):
                    process.visit(Errand.stop_profile)


def look_at(
    pids: Sequence[int], mean: int, seconds: float | None, read: Callable[[Process, bool], Found]
) -> tuple[list[Found], list[str]]:
    """What `read` finds in each process after they were sampled together, and why it finds nothing in the others.

    It lasts `seconds`; with None, until Ctrl-C, which the processes do not get. Raises UserError if it finds nothing.
    """
    found, refused, looked_at = [], [], []
    with look_until(pids, seconds) as wait, ExitStack() as looks:
        for pid in pids:
            try:
                process = Process(pid)
                looked_at.append((process, looks.enter_context(sampled(process, mean))))
            except UserError as error:
                refused.append(str(error))
        if looked_at:
            wait()
        for process, own in looked_at:
            try:
                found.append(read(process, own))
            except UserError as error:
                refused.append(str(error))
    if not found:
        raise UserError("; ".join(refused))
    return found, refused


@contextmanager
def shown(pid: int) -> Iterator[None]:
    """The process keeps a live page meanwhile, even if it was not started with one."""
    if keeps_page(pid):
        yield
        return
    process = Process(pid)
    with renewed(process, Looked.page):
        process.visit(Errand.show_page)
        try:
            yield
        finally:
            if _runs(pid):
                with suppress(UserError):
                    process.visit(Errand.hide_page)
