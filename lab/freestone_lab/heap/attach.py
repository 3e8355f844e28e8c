"""Asks a process that runs under libfreestone, and was not prepared for it, what it holds.

The request is written into the library's own memory (allocator/src/upkeep/request.h). The next slow path of any thread
of the program answers there, or its background thread does. Nothing stops, but for a search for leaks, and no code is
led anywhere: a program that calls malloc and free answers within milliseconds, an idle one when it goes on.

This needs the rights of a debugger: the same user, or root if /proc/sys/kernel/yama/ptrace_scope is not 0.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from freestone_lab.core import signals
from freestone_lab.core.errors import UserError
from freestone_lab.heap import filters, in_place, snapshot
from freestone_lab.heap.loaded import find_library, memory_of, no_right
from freestone_lab.heap.snapshot import Snapshot

PATIENCE_S = 5.0  # how long to wait for an answer; a program that works, or whose background thread runs, needs less
LAST_LOOK_S = 2.5  # how long a program that is to end may take for all answers of its processes
ANSWERS_WHILE_IDLE = "background_purge:true"  # an option for programs that the tool starts
CLAIM_S = 3.0  # how long others wait for the answer to a tool that was killed
LEASE_S = 10.0  # how long a look lasts that nobody renews
RENEWED_EVERY_S = 1.0
RECALLED_EVERY_S = 0.05

MAGIC = 0xA76D_13E5_9BC2_F800
ASKED = b"\x80"  # in the last byte of the attention word
WORD_AT, TICKET_AT, UNTIL_AT, LOOK_AT, SAMPLED_FOR_AT, ANSWER_AT = 0, 8, 24, 32, 48, 56
CACHES = struct.Struct("=7Q")  # CachePlaces: chains, their count, and where what lies in a cache
ANSWER = struct.Struct("=qQQQ")  # result, text, its bytes, the ticket
PPROF, CONFIGURED = 0, 255  # the form of a profile

Found = TypeVar("Found")


class Errand(enum.IntEnum):
    """What a request asks for, as in request.h."""

    start_profile = 1
    write_profile = 2
    write_leaks = 3


@dataclass(frozen=True)
class Answer:
    result: int
    text: bytes


class Process:
    """A process that runs under libfreestone. It is asked one thing at a time."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._memory = memory_of(pid)
        self._library = find_library(pid, self._memory)
        self._clock_ahead_s = _clock_ahead(pid)

    def profile(self, form: int = PPROF) -> bytes:
        """What it has sampled so far, as a file."""
        return self._text(Errand.write_profile, form)

    def leaks(self) -> bytes:
        """Which of the blocks that were sampled are lost, as JSON. A signal stops the other threads meanwhile."""
        return self._text(Errand.write_leaks)

    def statistics(self) -> Snapshot:
        """Its figures as they are now. It is not asked, and may be idle."""
        return in_place.snapshot(self.pid, in_place.Counters(self._read, self._library.places, self._caches()))

    def _text(self, errand: Errand, argument: int = 0) -> bytes:
        answer = self.ask(errand, argument)
        if answer.result != 0:
            raise UserError(f"process {self.pid} has no memory left for the report: {os.strerror(answer.result)}")
        return answer.text

    def ask(self, errand: Errand, argument: int = 0, seconds: float = PATIENCE_S) -> Answer:
        """UserError when the process has ended, may not be asked, or takes no slow path in time."""
        until = time.monotonic() + seconds
        while True:
            with self.asked(errand, argument, seconds) as answer:
                while (found := answer()) is None:
                    if time.monotonic() > until:
                        raise self.no_call()
                    time.sleep(0.001)
            if found.result != errno.EBUSY or time.monotonic() > until:
                return found

    @contextmanager
    def asked(self, errand: Errand, argument: int = 0, seconds: float = 0) -> Iterator[Callable[[], Answer | None]]:
        """Writes the request, and yields a function that reads the answer if there is one. Afterwards nothing is asked.

        Waits so many seconds until no other looker asks.
        """
        filters.must_allow(self.pid, errand == Errand.write_leaks)
        ticket, until = random.getrandbits(64), time.monotonic() + seconds
        prolonged = recalled = 0.0
        while not self._claim(ticket, argument):
            if time.monotonic() > until:
                raise UserError(f"process {self.pid} cannot be looked at: another look goes on")
            time.sleep(0.002)
        self.write(WORD_AT, MAGIC | errand)
        os.pwrite(self._memory.fileno(), ASKED, self._library.attention + 3)

        def answer() -> Answer | None:
            nonlocal prolonged, recalled
            now = time.monotonic()
            if now > prolonged + CLAIM_S / 3:
                self.write(UNTIL_AT, self._in_ms(CLAIM_S))
                prolonged = now
            if (found := self._answer_to(ticket)) is None and now > recalled + RECALLED_EVERY_S:
                self._recall_caches()
                recalled = now
            return found

        try:
            yield answer
        finally:
            with suppress(UserError), _alone(self.pid):
                if self._words(TICKET_AT, 1) == (ticket,):
                    self.write(WORD_AT, 0)
                    self.write(UNTIL_AT, 0)

    def _claim(self, ticket: int, argument: int) -> bool:
        """Makes the request ours, so that no other tool asks, until it is withdrawn or no longer prolonged."""
        with _alone(self.pid):
            (until_ms,) = self._words(UNTIL_AT, 1)
            if until_ms > self._clock_ms():
                return False
            self.write(WORD_AT, 0, ticket, argument, self._in_ms(CLAIM_S))
            return True

    def _answer_to(self, ticket: int) -> Answer | None:
        result, place, length, answered = ANSWER.unpack(self._read(self._library.request + ANSWER_AT, ANSWER.size))
        return Answer(result, self._read(place, length)) if answered == ticket else None

    def _recall_caches(self) -> None:
        """Sends the next small allocation of each thread to a slow path, as recall_caches in cache/registry.h does."""
        _, _, _, table_at, table_bytes, entry, recalled_at = self._cache_places()
        for cache in self._caches():
            os.pwrite(self._memory.fileno(), bytes([entry]) * table_bytes, cache + table_at)
            os.pwrite(self._memory.fileno(), b"\1", cache + recalled_at)

    def _cache_places(self) -> tuple[int, ...]:
        return CACHES.unpack(self._read(self._library.caches, CACHES.size))

    def _caches(self) -> Iterator[int]:
        """Where the caches lie. The memory of a cache stays one when its thread has ended."""
        chains, count, next_at, *_ = self._cache_places()
        seen: set[int] = set()
        for place in range(chains, chains + 8 * count, 8):
            cache = self._pointer(place)
            while cache and cache not in seen:
                seen.add(cache)
                yield cache
                cache = self._pointer(cache + next_at)

    def _pointer(self, place: int) -> int:
        """What lies there, seen twice: no half of one address and half of the next."""
        before = b""
        while before != (before := self._read(place, 8)):
            pass
        return int.from_bytes(before, sys.byteorder)

    def is_sampling(self) -> bool:
        """Whether a profile runs because somebody looks."""
        return self._words(SAMPLED_FOR_AT, 1) != (0,)

    def write(self, at: int, *words: int) -> None:
        try:
            os.pwrite(self._memory.fileno(), struct.pack(f"={len(words)}Q", *words), self._library.request + at)
        except OSError as error:
            raise self._ended() from error

    def renew(self, look: int) -> None:
        """Wants samples for this look for a while longer. 0: no more."""
        self.write(LOOK_AT, look, self._in_ms(LEASE_S) if look else 0)

    def wanted_look(self) -> int:
        """The look of another tool that still wants samples; 0: none."""
        look, until_ms = self._words(LOOK_AT, 2)
        return look if until_ms > self._clock_ms() else 0

    def no_call(self) -> UserError:
        with suppress(OSError):
            if b"FREESTONE_DISABLE=1" in Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0"):
                return UserError(f"process {self.pid} has switched libfreestone off (FREESTONE_DISABLE)")
        return UserError(
            f"process {self.pid} does not answer: it took no memory and gave none back meanwhile; look for longer, "
            f"or when it works, or start it with FREESTONE_CONF={ANSWERS_WHILE_IDLE}"
        )

    def _ended(self) -> UserError:
        return UserError(f"process {self.pid} has ended, or runs another program now")

    def _clock_ms(self) -> int:
        return round(1000 * (time.clock_gettime(time.CLOCK_MONOTONIC) + self._clock_ahead_s))

    def _in_ms(self, seconds: float) -> int:
        """Its clock after so many seconds."""
        return self._clock_ms() + round(1000 * seconds)

    def _words(self, at: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"={count}Q", self._read(self._library.request + at, 8 * count))

    def _read(self, place: int, length: int) -> bytes:
        pieces = []
        while length > 0:
            try:
                piece = os.pread(self._memory.fileno(), min(length, 1 << 20), place)
            except OSError as error:
                raise self._ended() from error
            if not piece:
                raise self._ended()
            pieces.append(piece)
            place, length = place + len(piece), length - len(piece)
        return b"".join(pieces)


def _clock_ahead(pid: int) -> float:
    """By how many seconds its clock is ahead of ours, in a namespace of times."""
    ahead = []
    for one in (pid, os.getpid()):
        try:
            words = Path(f"/proc/{one}/timens_offsets").read_text().split()
            ahead.append(int(words[1]) + int(words[2]) / 1e9)
        except (OSError, IndexError, ValueError):
            ahead.append(0.0)
    return ahead[0] - ahead[1]


@contextmanager
def _alone(pid: int) -> Iterator[None]:
    """Excludes other lookers for an instant, in any container: they all lock the same namespace."""
    try:
        file = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UserError(f"process {pid} has ended") from error
    except PermissionError as error:
        raise no_right(pid) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def ask_each(pids: Sequence[int], errand: Errand, argument: int, seconds: float) -> Mapping[int, bytes]:
    """What the processes answer in time, asked together; without those that do not answer or may not be asked."""
    texts: dict[int, bytes] = {}
    until = time.monotonic() + seconds
    with ExitStack() as requests:
        waiting = {}
        for pid in pids:
            with suppress(UserError):
                waiting[pid] = requests.enter_context(Process(pid).asked(errand, argument))
        while waiting and time.monotonic() < until:
            for pid, answer in list(waiting.items()):
                try:
                    found = answer()
                except UserError:
                    del waiting[pid]
                    continue
                if found is not None:
                    del waiting[pid]
                    texts.update({pid: found.text} if found.result == 0 else {})
            time.sleep(0.001)
    return texts


class Look:
    """Has a process profiled while it is entered, and leaves it as before.

    The process begins at its next slow path. A profile that runs already goes on. If this tool is killed, the process
    ends the profile by itself.
    """

    def __init__(self, process: Process, sample_bytes: int) -> None:
        self.process = process
        self.own = False  # whether the profile began with this look
        self._sample_bytes = sample_bytes
        self._began = self._was_sampling = False
        self._stack = ExitStack()
        self._request = ExitStack()

    def __enter__(self) -> Look:
        with ExitStack() as entered:
            joined = self.process.wanted_look()
            look = joined or random.getrandbits(63) + 1
            if not joined:
                entered.callback(self._end)
            entered.enter_context(_repeated(lambda: self.process.renew(look)))
            entered.enter_context(self._request)
            request = self.process.asked(Errand.start_profile, self._sample_bytes, PATIENCE_S)
            self._answer = self._request.enter_context(request)
            self._stack = entered.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self) -> None:
        with suppress(UserError):
            self.process.renew(0)
            until = time.monotonic() + RENEWED_EVERY_S / 2
            while self.own and self.process.is_sampling() and time.monotonic() < until:
                time.sleep(0.001)

    def began(self) -> bool:
        """Whether the process has answered by now."""
        if not self._began and (answer := self._answer()) is not None:
            self._began, self.own = True, answer.result == 0
            self._was_sampling = self.process.is_sampling()
            self._request.close()
        return self._began

    def must_have_begun(self) -> None:
        if not self.began():
            raise self.process.no_call()
        if self._was_sampling and not self.process.is_sampling():
            raise UserError(
                f"process {self.process.pid} ended the look: another look ended it, or this tool stood still"
            )


def poll(looks: Sequence[Look]) -> None:
    """Takes the answers that are there, so that others may ask."""
    for look in looks:
        with suppress(UserError):
            look.began()


@contextmanager
def _repeated(action: Callable[[], None]) -> Iterator[None]:
    """Does it now, and again and again meanwhile."""
    over = threading.Event()
    action()

    def repeat() -> None:
        with suppress(UserError):
            while not over.wait(RENEWED_EVERY_S):
                action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def look_until(pids: Sequence[int], seconds: float | None) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Yields a function that waits until the time is over, the processes have ended, or Ctrl-C, SIGTERM or SIGHUP came.

    Meanwhile it does what it is given, again and again. Within the context these signals end the look and nothing else.
    They count from its beginning.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        asked.append(number)

    def wait(meanwhile: Callable[[], object]) -> None:
        until = None if seconds is None else time.monotonic() + seconds
        while not asked and any(map(snapshot.is_running, pids)) and (until is None or time.monotonic() < until):
            meanwhile()
            time.sleep(0.02)

    with signals.handled(ask):
        yield wait


def look_at(
    pids: Sequence[int], mean: int, seconds: float | None, read: Callable[[Look], Found]
) -> tuple[list[Found], list[str]]:
    """What `read` finds in each process after they were sampled together, and why it finds nothing in the others.

    It lasts `seconds`; with None, until Ctrl-C, which the processes do not get. Raises UserError if it finds nothing.
    """
    found, refused = [], []
    looks: list[Look] = []
    with look_until(pids, seconds) as wait, ExitStack() as entered:
        for pid in pids:
            try:
                looks.append(entered.enter_context(Look(Process(pid), mean)))
            except UserError as error:
                refused.append(str(error))
        if looks:
            wait(lambda: poll(looks))
        for look in looks:
            try:
                look.must_have_begun()
                found.append(read(look))
            except UserError as error:
                refused.append(str(error))
    if not found:
        raise UserError("; ".join(refused))
    return found, refused


def statistics_of(pid: int) -> Callable[[], Snapshot]:
    """Reads the figures of the process in its memory, or its live page where only that may be read."""
    try:
        process = Process(pid)
        process.statistics()
        return process.statistics
    except UserError:
        if snapshot.keeps_page(pid):
            return lambda: snapshot.from_process(pid)
        raise
