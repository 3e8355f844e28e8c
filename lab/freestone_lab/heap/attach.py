"""Calls functions of libfreestone inside a running process, so that a look at it needs no preparation.

ptrace stops one thread for the length of one call. That thread must be outside the library: neither its program counter
nor any word on top of its stack lies in the library's code. So the call may allocate, take locks and write files like
any other call of that thread. A dead word may lie on the stack of a waiting thread for as long as it waits. So if no
other thread is found, one that waits in a system call of the program itself will do. Afterwards the thread gets all its
registers back, and an interrupted system call starts again.

This needs the rights of a debugger: the same user, or root if /proc/sys/kernel/yama/ptrace_scope is not 0. It works on
x86-64 and aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.heap.loaded import find_library
from freestone_lab.heap.snapshot import page_path

PTRACE_CONT, PTRACE_DETACH = 7, 17
PTRACE_GETREGSET, PTRACE_SETREGSET, PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
PTRACE_EVENT_STOP = 128
NT_PRSTATUS, NT_FPREGS, NT_ARM_SYSTEM_CALL = 1, 2, 0x404
WAIT_ALL = 0x4000_0000  # __WALL
STACK_LOOKED_AT = 16 * 1024  # bytes above the stack pointer that must hold no address of the library
RED_ZONE = 512
PATIENCE_S = 30.0  # how long to look for a thread outside the library; on a busy machine each look takes long
CLEAN_S = 0.2  # how long to insist on one whose stack holds no word of the library


@dataclass(frozen=True)
class Machine:
    """Where a processor keeps what a call needs: places in the array of its general registers."""

    registers: int
    arguments: tuple[int, ...]
    result: int
    stack: int
    counter: int
    vector_note: int  # the register set that holds the vector registers
    vector_bytes: int
    call_number: int | None  # the register that holds the interrupted system call's number
    link: int | None  # the register of the return address; None: it lies on the stack
    starting: frozenset[int]  # system calls during which locks are held for a fork
    waiting: frozenset[int]  # system calls in which programs wait; the library makes its own from its own code


# read, poll, select, epoll_wait, accept, recvfrom, recvmsg, nanosleep, pause, wait4, sigtimedwait and their kin
_WAITING_X86 = frozenset((0, 19, 7, 271, 23, 270, 232, 281, 441, 43, 288, 45, 47, 35, 230, 34, 61, 247, 128, 130))
_WAITING_ARM = frozenset((63, 65, 72, 73, 22, 441, 202, 242, 207, 212, 101, 115, 260, 95, 137, 133))
MACHINES = {
    "x86_64": Machine(
        27, (14, 13, 12), 10, 19, 16, 0x202, 16 * 1024, 15, None, frozenset((56, 57, 58, 435)), _WAITING_X86
    ),
    "aarch64": Machine(34, (0, 1, 2), 0, 31, 32, NT_FPREGS, 1024, None, 30, frozenset((220, 435)), _WAITING_ARM),
}


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, tid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _read_set(tid: int, note: int, size: int) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    vector = _Vector(ctypes.addressof(buffer), size)
    _ptrace(PTRACE_GETREGSET, tid, note, ctypes.addressof(vector))
    return buffer.raw[: vector.bytes]


def _write_set(tid: int, note: int, content: bytes) -> None:
    buffer = ctypes.create_string_buffer(content, len(content))
    vector = _Vector(ctypes.addressof(buffer), len(content))
    _ptrace(PTRACE_SETREGSET, tid, note, ctypes.addressof(vector))


Argument = int | str | bytearray  # a bytearray is passed by its address, and holds what the function left there


class Process:
    """A process that runs under libfreestone. Its threads stop only for single calls."""

    def __init__(self, pid: int) -> None:
        name = platform.machine()
        if name not in MACHINES:
            raise UserError(f"attaching is not possible on {name}; expected {' or '.join(MACHINES)}")
        self.machine = MACHINES[name]
        self.pid = pid
        self.library = find_library(pid)

    def threads(self) -> list[int]:
        try:
            return sorted(int(t.name) for t in Path(f"/proc/{self.pid}/task").iterdir())
        except OSError as error:
            raise UserError(f"process {self.pid} has ended") from error

    def call(self, function: str, *arguments: Argument) -> int:
        """Calls the function on some thread that is outside the library, and returns its result, an int.

        Raises UserError when the process has ended, may not be traced, or has no such thread within PATIENCE_S.
        """
        start = time.monotonic()
        until = start + PATIENCE_S
        while True:
            waiting_will_do = time.monotonic() > start + CLEAN_S
            for tid in self.threads():
                result = self._call_on(tid, function, arguments, waiting_will_do)
                if result is not None:
                    return result
            if time.monotonic() > until:
                tracer = self._tracer(self.pid)
                why = f"process {tracer} traces it" if tracer else "every thread is inside the allocator"
                raise UserError(f"process {self.pid} cannot be looked at: {why}")
            time.sleep(0.001)

    def call_on_every_thread(self, function: str, *arguments: Argument) -> int:
        """Calls the function once on each thread that it can find outside the library. Returns on how many."""
        done = 0
        for tid in self.threads():
            for attempt in range(5):
                if self._call_on(tid, function, arguments, attempt == 4) is not None:
                    done += 1
                    break
                time.sleep(0.001)
        return done

    def _call_on(self, tid: int, function: str, arguments: tuple[Argument, ...], waiting_will_do: bool) -> int | None:
        address = self.library.functions.get(function)
        if address is None:
            raise UserError(f"{self.library.path} has no function {function}; it is of another version than this tool")
        with _undisturbed(), self._stopped(tid) as stopped:
            if not stopped or not self._is_outside(tid, waiting_will_do):
                return None
            return self._run(tid, address, arguments)

    @contextmanager
    def _stopped(self, tid: int) -> Iterator[bool]:
        """Stops the thread meanwhile. Yields False if it has ended or somebody else traces it."""
        try:
            _ptrace(PTRACE_SEIZE, tid)
        except OSError as error:
            if error.errno != errno.ESRCH and not self._may_be_traced(tid):
                raise UserError(self._refusal()) from error
            yield False
            return
        alive = False
        try:
            _ptrace(PTRACE_INTERRUPT, tid)
            while not alive:
                _, status = os.waitpid(tid, WAIT_ALL)
                if not os.WIFSTOPPED(status):
                    break
                alive = status >> 16 == PTRACE_EVENT_STOP
                if not alive:  # a signal of the program's own: handed on
                    _ptrace(PTRACE_CONT, tid, 0, os.WSTOPSIG(status))
            yield alive
        finally:
            if alive:
                try:
                    _ptrace(PTRACE_DETACH, tid)
                except OSError:
                    alive = False

    def _may_be_traced(self, tid: int) -> bool:
        """Asks the kernel for the same right by a file, where another tracer, perhaps gone by now, does not matter."""
        try:
            Path(f"/proc/{tid}/mem").open("rb").close()
        except PermissionError:
            return False
        except OSError:
            pass
        return True

    def _tracer(self, tid: int) -> int:
        """The process that traces the thread now; 0 when there is none."""
        try:
            status = Path(f"/proc/{tid}/status").read_text(errors="surrogateescape").splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in status if line.startswith("TracerPid")), 0)

    def _refusal(self) -> str:
        return (
            f"process {self.pid} may not be traced; try it as root, or with "
            "/proc/sys/kernel/yama/ptrace_scope set to 0 and as the same user"
        )

    def _registers(self, tid: int) -> list[int]:
        count = self.machine.registers
        return list(struct.unpack(f"={count}Q", _read_set(tid, NT_PRSTATUS, count * 8)))

    def _set_registers(self, tid: int, registers: list[int]) -> None:
        _write_set(tid, NT_PRSTATUS, struct.pack(f"={len(registers)}Q", *registers))

    def _is_outside(self, tid: int, waiting_will_do: bool) -> bool:
        """Whether the thread runs nothing of the library, and no fork."""
        registers = self._registers(tid)
        if self.library.holds(registers[self.machine.counter]):
            return False
        call = self._system_call(tid, registers)
        if call in self.machine.starting:
            return False
        if waiting_will_do and call in self.machine.waiting:
            return True
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as memory:
            try:
                top = os.pread(memory.fileno(), STACK_LOOKED_AT, registers[self.machine.stack])
            except OSError:
                return False
        words = struct.unpack(f"={len(top) // 8}Q", top[: len(top) // 8 * 8])
        link = [registers[self.machine.link]] if self.machine.link is not None else []
        return not any(self.library.holds(word) for word in (*words, *link))

    def _system_call(self, tid: int, registers: list[int]) -> int:
        if self.machine.call_number is not None:
            return registers[self.machine.call_number]
        return int(struct.unpack("=i", _read_set(tid, NT_ARM_SYSTEM_CALL, 4))[0])

    def _run(self, tid: int, address: int, arguments: tuple[Argument, ...]) -> int:
        machine = self.machine
        before = self._registers(tid)
        vectors = _read_set(tid, machine.vector_note, machine.vector_bytes)
        number = b"" if machine.call_number is not None else _read_set(tid, NT_ARM_SYSTEM_CALL, 4)
        changed = list(before)
        texts = [b"" if isinstance(a, int) else a.encode() + b"\0" if isinstance(a, str) else a for a in arguments]
        stack = (before[machine.stack] - RED_ZONE - sum(map(len, texts))) // 16 * 16
        with Path(f"/proc/{self.pid}/mem").open("r+b", buffering=0) as memory:
            place, buffers = stack, []
            for register, argument, text in zip(machine.arguments, arguments, texts, strict=False):
                changed[register] = argument if isinstance(argument, int) else place
                if isinstance(argument, bytearray):
                    buffers.append((place, argument))
                os.pwrite(memory.fileno(), text, place)
                place += len(text)
            # The call returns to address 0, which faults: that is how its end is seen.
            if machine.link is None:
                stack -= 8
                os.pwrite(memory.fileno(), bytes(8), stack)
            else:
                changed[machine.link] = 0
        changed[machine.stack], changed[machine.counter] = stack, address
        if machine.call_number is not None:
            changed[machine.call_number] = 2**64 - 1
            changed[machine.result] = 0
        else:
            _write_set(tid, NT_ARM_SYSTEM_CALL, struct.pack("=i", -1))
        self._set_registers(tid, changed)
        try:
            self._resume_until_return(tid)
            with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as memory:
                for place, buffer in buffers:
                    buffer[:] = os.pread(memory.fileno(), len(buffer), place)
            return ctypes.c_int(self._registers(tid)[machine.result] & 0xFFFF_FFFF).value
        finally:
            if Path(f"/proc/{self.pid}/task/{tid}").exists():
                self._set_registers(tid, before)
                _write_set(tid, machine.vector_note, vectors)
                if number:
                    _write_set(tid, NT_ARM_SYSTEM_CALL, number)

    def _resume_until_return(self, tid: int) -> None:
        number = 0
        while True:
            _ptrace(PTRACE_CONT, tid, 0, number)
            _, status = os.waitpid(tid, WAIT_ALL)
            if not os.WIFSTOPPED(status):
                raise UserError(f"process {self.pid} ended meanwhile")
            number = 0 if status >> 16 else os.WSTOPSIG(status)
            if number in (signal.SIGSEGV, signal.SIGBUS) and self._registers(tid)[self.machine.counter] == 0:
                return


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays Ctrl-C between a stop and its undoing until afterwards."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def option(process: Process, name: str) -> str:
    """The value of an option of libfreestone in the process."""
    value = bytearray(512)
    if (error := process.call("freestone_option_get", name, value, len(value))) != 0:
        raise UserError(f"process {process.pid} does not say its option {name}: {os.strerror(error)}")
    return value.partition(b"\0")[0].decode()


def set_option(process: Process, name: str, value: str) -> None:
    """Sets a run-time option of libfreestone in the process."""
    error = process.call("freestone_option_set", name, value)
    if error != 0:
        raise UserError(f"process {process.pid} refuses the option {name}:{value}: {os.strerror(error)}")


@contextmanager
def look_until(pid: int, seconds: float | None) -> Iterator[Callable[[], None]]:
    """Yields a function that waits until the time is over, the process has ended, or Ctrl-C, SIGTERM or SIGHUP came.

    Within the context these signals end the look and nothing else. They count from its beginning.
    """
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        asked.append(number)

    def wait() -> None:
        until = None if seconds is None else time.monotonic() + seconds
        while not asked and Path(f"/proc/{pid}/task").exists() and (until is None or time.monotonic() < until):
            time.sleep(0.02)

    before = {n: signal.signal(n, ask) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sampled(process: Process, sample_bytes: int) -> Iterator[None]:
    """Profiles the process meanwhile and leaves it as before. A running profile goes on, with its own mean."""
    was_active = process.call("freestone_prof_is_active") != 0
    mean_before = option(process, "prof_sample_bytes")
    if not was_active:
        set_option(process, "prof_sample_bytes", str(sample_bytes))
        process.call_on_every_thread("freestone_prof_start")
    try:
        yield
    finally:
        if not was_active and Path(f"/proc/{process.pid}/task").exists():
            process.call_on_every_thread("freestone_prof_stop")
            set_option(process, "prof_sample_bytes", mean_before)


@contextmanager
def file_of(process: Process, what: str) -> Iterator[tuple[str, Path]]:
    """A file for the process to write: its name there and its path here. It is removed at the end."""
    name = f"/tmp/freestone-{what}-{process.pid}-{time.time_ns()}"
    here = Path(f"/proc/{process.pid}/root{name}")
    try:
        yield name, here
    finally:
        with suppress(OSError):
            here.unlink()


@contextmanager
def shown(pid: int) -> Iterator[None]:
    """The process keeps a live page meanwhile, even if it was not started with one."""
    if page_path(pid).exists():
        yield
        return
    process = Process(pid)
    set_option(process, "live_page", "true")
    try:
        yield
    finally:
        with suppress(UserError):
            set_option(process, "live_page", "false")
