"""One thread of another process under ptrace: stopping it, its registers, and letting it go.

A thread belongs to the thread that traces it. When that ends, the kernel lets go of all that it traced, so whoever
calls this runs it in a thread of its own (`in_own_thread`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

PTRACE_CONT, PTRACE_DETACH = 7, 17
PTRACE_GETREGSET, PTRACE_SETREGSET, PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
PTRACE_GETSIGMASK, PTRACE_SETSIGMASK, PTRACE_GET_RSEQ = 0x420A, 0x420B, 0x420F
PTRACE_EVENT_STOP = 128
NT_PRSTATUS, NT_FPREGS = 1, 2
WAIT_ALL = 0x4000_0000  # __WALL
FAULTS = sum(1 << n - 1 for n in (4, 5, 7, 8, 11, 31))  # SIGILL, TRAP, BUS, FPE, SEGV, SYS
STOP_S = 1.0  # how long a thread may take to stop; one that waits for a disk or for its vfork may take longer

T = TypeVar("T")


class Gone(Exception):
    """The thread has ended."""


@dataclass(frozen=True)
class Machine:
    """Where a processor keeps what a visit needs: places in the array of its general registers, numbers of calls."""

    registers: int
    stack: int
    counter: int
    room_registers: int  # where VisitRoom keeps the registers, and the mask
    room_mask: int
    vectors: tuple[int, ...]  # notes: the first that the kernel knows holds the vector registers
    others: tuple[int, ...]  # notes of further state that a call changes: the shadow stack
    thread_pointer: tuple[int, int]  # note, and place in it
    timed: frozenset[int]  # calls that the kernel goes on with by restart_syscall: nanosleep, futex and their kin
    never_again: frozenset[int]  # calls that end with EINTR whenever their thread stops, by the kernel's own rule


# x86-64: epoll_wait, epoll_pwait, epoll_pwait2, rt_sigtimedwait, semop, semtimedop, io_getevents, io_uring_enter.
X86 = Machine(
    27, 19, 16, 64, 280, (0x202, NT_FPREGS), (0x204,), (NT_PRSTATUS, 21),
    frozenset(), frozenset((232, 281, 441, 128, 65, 220, 208, 426)),
)  # fmt: skip
ARM = Machine(
    34, 31, 32, 376, 232, (0x405, NT_FPREGS), (0x410,), (0x401, 0),
    frozenset((101, 115, 98)), frozenset((22, 441, 137, 193, 192, 4, 426)),
)  # fmt: skip
MACHINES = {"x86_64": X86, "aarch64": ARM}


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, tid: int, address: int = 0, data: int = 0, *, missing: int = 0) -> int:
    """The system call's result. Raises Gone or OSError; -1 for the error `missing`."""
    result = int(_libc.ptrace(request, tid, address, data))
    if result == -1:
        number = ctypes.get_errno()
        if number == missing:
            return -1
        raise Gone if number == errno.ESRCH else OSError(number, os.strerror(number))
    return result


class Thread:
    """A thread that this one traces. Its methods raise Gone when it has ended."""

    def __init__(self, tid: int, machine: Machine) -> None:
        self.tid = tid
        self.machine = machine

    def seize(self) -> None:
        """OSError with EPERM when somebody else traces it, or it may not be traced."""
        ptrace(PTRACE_SEIZE, self.tid)

    def stop(self) -> bool:
        """Stops it. False if it does not come in time: then it must be left to the end of this thread."""
        ptrace(PTRACE_INTERRUPT, self.tid)
        until = time.monotonic() + STOP_S
        while time.monotonic() < until:
            if self.serve() == PTRACE_EVENT_STOP:
                return True
            time.sleep(0.0001)
        return False

    def serve(self) -> int:
        """Lets it go on if it stopped for a signal. PTRACE_EVENT_STOP if it stands still for us, else 0."""
        found, status = os.waitpid(self.tid, WAIT_ALL | os.WNOHANG)
        if found == 0:
            return 0
        if not os.WIFSTOPPED(status):
            raise Gone
        if status >> 16 == PTRACE_EVENT_STOP:
            return PTRACE_EVENT_STOP
        ptrace(PTRACE_CONT, self.tid, 0, 0 if status >> 16 else os.WSTOPSIG(status))
        return 0

    def run(self) -> None:
        ptrace(PTRACE_CONT, self.tid)

    def let_go(self) -> None:
        ptrace(PTRACE_DETACH, self.tid)

    def read_set(self, note: int, size: int = 16 * 1024) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        vector = _Vector(ctypes.addressof(buffer), size)
        ptrace(PTRACE_GETREGSET, self.tid, note, ctypes.addressof(vector))
        return buffer.raw[: vector.bytes]

    def write_set(self, note: int, content: bytes) -> None:
        buffer = ctypes.create_string_buffer(content, len(content))
        vector = _Vector(ctypes.addressof(buffer), len(content))
        ptrace(PTRACE_SETREGSET, self.tid, note, ctypes.addressof(vector))

    def registers(self) -> list[int]:
        count = self.machine.registers
        return list(struct.unpack(f"={count}Q", self.read_set(NT_PRSTATUS, count * 8)))

    def set_registers(self, registers: list[int]) -> None:
        self.write_set(NT_PRSTATUS, struct.pack(f"={len(registers)}Q", *registers))

    def mask(self) -> int:
        value = ctypes.c_uint64()
        ptrace(PTRACE_GETSIGMASK, self.tid, 8, ctypes.addressof(value))
        return value.value

    def set_mask(self, mask: int) -> None:
        value = ctypes.c_uint64(mask)
        ptrace(PTRACE_SETSIGMASK, self.tid, 8, ctypes.addressof(value))

    def further_state(self) -> list[tuple[int, bytes]]:
        """What the kernel keeps of it beside the general registers."""
        found = []
        for notes in (self.machine.vectors, *((note,) for note in self.machine.others)):
            for note in notes:
                try:
                    found.append((note, self.read_set(note)))
                    break
                except OSError:
                    continue
        return found

    def can_be_led_away(self) -> bool:
        """Whether it can run our code here, and could go on by itself afterwards."""
        note, place = self.machine.thread_pointer
        if struct.unpack_from("=Q", self.read_set(note), 8 * place)[0] == 0:
            return False  # a thread without libc's storage
        if self._has_fault_to_take():
            return False
        if self.machine is ARM and self._uses_wide_vectors():
            return False
        return not self._is_in_restartable_sequence()

    def _has_fault_to_take(self) -> bool:
        """Whether it stopped between a fault and the signal for it, whose handler must see the place of the fault."""
        lines = Path(f"/proc/{self.tid}/status").read_text(errors="surrogateescape").splitlines()
        return any(line.startswith("SigPnd:") and int(line.split()[1], 16) & FAULTS for line in lines)

    def _uses_wide_vectors(self) -> bool:
        """Whether registers of SVE or SME are in use: nobody could put them back if this process died meanwhile."""
        for note in (0x405, 0x40B):
            try:
                if struct.unpack_from("=H", self.read_set(note), 12)[0] & 1:
                    return True
            except OSError:
                continue
        return False

    def _is_in_restartable_sequence(self) -> bool:
        """There the kernel watches the program counter; it would lose sight of a thread that we lead away."""
        buffer = ctypes.create_string_buffer(24)
        try:
            ptrace(PTRACE_GET_RSEQ, self.tid, len(buffer), ctypes.addressof(buffer))
        except OSError:
            return False
        place = int(struct.unpack_from("=Q", buffer.raw)[0])
        if place == 0:
            return False
        with Path(f"/proc/{self.tid}/mem").open("rb", buffering=0) as memory:
            return os.pread(memory.fileno(), 8, place + 8) != bytes(8)


def after_stop(machine: Machine, before: list[int], waits_in: tuple[int, int]) -> tuple[list[int], list[int]]:
    """The registers to give back to a thread that stopped with `before`, and those with which it could go on by itself.

    The kernel looks at the first once more, as after any stop, and starts an interrupted system call again. To a thread
    that returns by itself it does not come back, so the second have that done.
    """
    given_back, goes_on = list(before), list(before)
    if machine is not X86:
        # The counter stands at the call already. One that goes on by restart_syscall cannot be told by the registers.
        call, counter = waits_in
        if call in machine.timed and before[machine.counter] == counter - 4 and before[8] == call:
            given_back[8] = goes_on[8] = 128
        return given_back, goes_on
    call = before[15] & 0xFFFF_FFFF
    error = struct.unpack("=q", struct.pack("=Q", before[10]))[0]
    if call == 0xFFFF_FFFF:
        return given_back, goes_on
    if error == -errno.EINTR and _waits_without_end(call, before):
        error = -514
        given_back[10] = 2**64 - 514  # ERESTARTNOHAND: EINTR if a signal's handler runs, else the call begins again
    if error in (-512, -513, -514, -516):  # ERESTARTSYS, -NOINTR, -NOHAND, _RESTARTBLOCK
        goes_on[10] = 219 if error == -516 else call
        goes_on[16] -= 2
    return given_back, goes_on


def _waits_without_end(call: int, registers: list[int]) -> bool:
    """Whether a call that ends with EINTR at every stop has no time limit, so that to begin it again is the same."""
    if call in (232, 281):
        return registers[7] & 0x8000_0000 != 0
    return call == 65 or (call in (441, 220) and registers[7] == 0) or (call == 128 and registers[12] == 0)


def may_be_traced(tid: int) -> bool:
    """Asks the kernel for the same right by a file, where another tracer, perhaps gone by now, does not matter."""
    try:
        Path(f"/proc/{tid}/mem").open("rb").close()
    except PermissionError:
        return False
    except OSError:
        pass
    return True


def in_own_thread(function: Callable[[], T]) -> T:
    """Runs the function in a thread of its own, and returns or raises what it does."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
