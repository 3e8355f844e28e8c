"""One visit: a thread of a process is led through libfreestone's room for visits. See attach.py."""

from __future__ import annotations

import enum
import os
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.heap import tracing
from freestone_lab.heap.loaded import Library
from freestone_lab.heap.tracing import Gone, Machine, Thread

IDLE, ASKED, ANSWERED, LEFT = range(4)  # VisitRoom::State
HEAD = struct.Struct("=IIQQqQQQ")  # state, thread, errand, argument, result, answer, its bytes, patience in ms
RENEWALS_AT = HEAD.size
THREAD_WAITS_MS = 2000  # for us, before it goes on by itself
ANSWER_S = 120.0  # how long an errand may take
WORDS_MAX = 3072  # of the registers of one thread, with its vectors
RED_ZONE = 128  # bytes below the stack pointer that belong to the thread
FLAGS_OFF = 0x40500  # alignment check, direction, single step


class Errand(enum.IntEnum):
    """What a visit asks for, as in visit.h."""

    start_profile = 1
    stop_profile = 2
    write_profile = 3
    write_leaks = 4
    show_page = 5
    hide_page = 6
    is_profiling = 7
    make_place = 8


@dataclass(frozen=True)
class Answer:
    result: int
    text: bytes
    place: int = 0


class Visit:
    """One errand on one thread."""

    def __init__(self, pid: int, tid: int, machine: Machine, library: Library) -> None:
        self.pid = pid
        self.machine = machine
        self.library = library
        self.tid = tid
        self.memory = -1

    def run(self, errand: Errand, argument: int) -> Answer | None:
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        try:
            if not self._room_is_free():
                return None
            thread = Thread(self.tid, self.machine)
            waits_in = system_call_of(self.pid, self.tid)
            thread.seize()
            if not thread.stop():
                return None
            if not thread.can_be_led_away():
                thread.let_go()
                return None
            if errand != Errand.write_leaks:
                return self._lead(thread, waits_in, errand, argument)
            return self._lead_alone(thread, waits_in)
        finally:
            os.close(self.memory)

    def _lead_alone(self, thread: Thread, waits_in: tuple[int, int]) -> Answer | None:
        """A search for leaks, by this thread, while all others stand still. It reads their registers."""
        threads = [t for t in threads_of(self.pid) if t != self.tid]
        place = self._lead(thread, waits_in, Errand.make_place, (len(threads) + 2) * WORDS_MAX * 8)
        if place is None or place.result != 0:
            return place
        waits_in = system_call_of(self.pid, self.tid)
        thread.seize()
        if not thread.stop() or not thread.can_be_led_away():
            return None
        able = [tid for tid in threads if state_of(self.pid, tid) not in ("", "D", "Z", "X", "x")]
        standing = [thread, *filter(self._stands, (Thread(tid, self.machine) for tid in able))]
        if set(threads_of(self.pid)) - {self.tid, *threads}:
            return None
        stacks, words = [], []
        for one in standing:
            registers = one.registers()
            stacks.append(registers[self.machine.stack] - RED_ZONE)
            words.append(struct.pack(f"={len(registers)}Q", *registers))
            words += [content[: WORDS_MAX * 4] for _, content in one.further_state()]
        os.pwrite(self.memory, struct.pack(f"={len(stacks)}Q", *stacks) + b"".join(words), place.place)
        try:
            return self._lead(thread, waits_in, Errand.write_leaks, len(stacks))
        finally:
            for one in standing[1:]:
                with suppress(Gone):
                    one.let_go()

    def _stands(self, thread: Thread) -> bool:
        """Stops it so that its system call goes on when it is let go, by us or by our end."""
        waits_in = system_call_of(self.pid, thread.tid)
        try:
            thread.seize()
            if not thread.stop():
                return False
            before = thread.registers()
            given_back, _ = tracing.after_stop(self.machine, before, waits_in)
            if given_back != before:
                thread.set_registers(given_back)
            return True
        except (Gone, OSError):
            return False

    def _room_is_free(self) -> bool:
        """Whether nobody is in it, even if an earlier looker died."""
        state, tid = struct.unpack("=II", os.pread(self.memory, 8, self.library.room))
        if state == IDLE or not Path(f"/proc/{self.pid}/task/{tid}").exists():
            return True
        thread = Thread(tid, self.machine)
        thread.seize()
        if not thread.stop():
            return False
        registers = thread.registers()
        thread.let_go()
        counter, stack = registers[self.machine.counter], registers[self.machine.stack]
        entered = self.library.entry <= counter < self.library.entry_end
        return not entered and not self.library.room <= stack <= self.library.room_end

    def _lead(self, thread: Thread, waits_in: tuple[int, int], errand: Errand, argument: int) -> Answer | None:
        machine, room = self.machine, self.library.room
        before, mask, state = thread.registers(), thread.mask(), thread.further_state()
        given_back, goes_on = tracing.after_stop(machine, before, waits_in)
        led = list(goes_on)
        led[machine.counter], led[machine.stack] = self.library.entry, self.library.room_end
        if machine is tracing.X86:
            led[15], led[18] = 2**64 - 1, before[18] & ~FLAGS_OFF
        os.pwrite(self.memory, struct.pack(f"={len(goes_on)}Q", *goes_on), room + machine.room_registers)
        os.pwrite(self.memory, struct.pack("=Q", mask), room + machine.room_mask)
        head = HEAD.pack(ASKED, self.tid, errand, argument, 0, 0, 0, THREAD_WAITS_MS)
        os.pwrite(self.memory, head, room)
        # From here on the thread can do without us. The registers change at once, and the room gives the mask back.
        # Signals wait until after the visit, but for faults and what a filter of system calls sends.
        thread.set_registers(led)
        thread.set_mask(mask | ~tracing.FAULTS & 2**64 - 1)
        thread.run()
        pause, until = 0.0001, time.monotonic() + ANSWER_S
        while self._head()[0] == ASKED:
            if time.monotonic() > until:
                raise UserError(f"process {self.pid} does not answer; its thread {self.tid} goes on when it has")
            if thread.serve() == tracing.PTRACE_EVENT_STOP:
                thread.run()  # the whole process is being stopped: it comes to that after the visit
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        if not thread.stop():
            return None
        answered, _, _, _, result, place, length, _ = self._head()
        if answered == ANSWERED:
            for note, content in state:
                thread.write_set(note, content)
            thread.set_mask(mask)
            thread.set_registers(given_back)
            os.pwrite(self.memory, struct.pack("=I", IDLE), room)
        thread.let_go()
        return Answer(result, self._read(place, length), place)

    def _head(self) -> tuple[int, ...]:
        head = os.pread(self.memory, HEAD.size, self.library.room)
        if len(head) < HEAD.size:
            raise Gone
        return HEAD.unpack(head)

    def _read(self, place: int, length: int) -> bytes:
        pieces = []
        while length > 0:
            piece = os.pread(self.memory, min(length, 1 << 20), place)
            if not piece:
                raise Gone
            pieces.append(piece)
            place, length = place + len(piece), length - len(piece)
        return b"".join(pieces)


def threads_of(pid: int) -> list[int]:
    try:
        return sorted(int(t.name) for t in Path(f"/proc/{pid}/task").iterdir())
    except OSError as error:
        raise UserError(f"process {pid} has ended") from error


def state_of(pid: int, tid: int) -> str:
    """A letter, as in /proc/PID/stat; "" when the thread has ended."""
    try:
        return Path(f"/proc/{pid}/task/{tid}/stat").read_text(errors="surrogateescape").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def status_of(pid: int, tid: int, name: str) -> str:
    try:
        lines = Path(f"/proc/{pid}/task/{tid}/status").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    return next((line.split()[1] for line in lines if line.startswith(f"{name}:")), "")


def system_call_of(pid: int, tid: int) -> tuple[int, int]:
    """The system call in which the thread waits, and its program counter; -1 when it does not wait."""
    try:
        words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
        return (int(words[0]), int(words[-1], 16)) if len(words) == 9 else (-1, 0)
    except (OSError, ValueError):
        return -1, 0
