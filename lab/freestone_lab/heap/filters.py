"""What a program's filter of system calls (seccomp) would do with the calls that a look needs.

The kernel gives the filters to a debugger with all rights. They are classic BPF: a few kinds of instructions, run here.
"""

import ctypes
import errno
import os
import platform
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.heap import names

PTRACE_CONT, PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_SECCOMP_GET_FILTER = 7, 0x4206, 0x4207, 0x420C
PTRACE_EVENT_STOP = 128
WAIT_ALL = 0x4000_0000  # __WALL
STOP_S = 1.0  # how long a thread may take to stop; one that waits for a disk or for its vfork may take longer
INSTRUCTION = struct.Struct("=HBBI")  # code, jumps if true and if false, operand
ALLOWED = (0x7FFF0000, 0x7FFC0000, 0x00050000)  # let through, written down, refused with an error: these end nothing
AT_FDCWD = 2**64 - 100
ARCHITECTURES = (0xC000003E, 0xC00000B7)  # x86-64, aarch64

# Number on x86-64, on aarch64, and the arguments of what an answer needs: reading /proc, and memory for the text.
CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "openat": (257, 56, (AT_FDCWD, 0, 0x80000)),
    "read": (0, 63, ()),
    "pread64": (17, 67, ()),
    "lseek": (8, 62, ()),
    "close": (3, 57, ()),
    "mmap": (9, 222, (0, 4096, 3, 0x22)),
    "mremap": (25, 216, ()),
    "munmap": (11, 215, ()),
    "getpid": (39, 172, ()),
    "gettid": (186, 178, ()),
}
# Listing the threads and stopping them, until they may go on.
CALLS_OF_LEAKS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "getdents64": (217, 61, ()),
    "rt_sigaction": (13, 134, (62, 1, 0, 8)),
    "tgkill": (234, 131, ()),
    "nanosleep": (35, 101, ()),
    "rt_sigreturn": (15, 139, ()),
}


class _Vanished(Exception):
    """The thread has ended."""


def must_allow(pid: int, leaks: bool) -> None:
    """Raises UserError if answering may end the process, or if nobody here may know."""
    for tid in _threads(pid):
        if names.status(tid, "Seccomp") in ([], ["0"]) or _are_ours(tid):
            continue
        # The kernel lets a thread go when the one that traces it ends.
        with suppress(_Vanished), ThreadPoolExecutor(1) as tracer:
            if reason := tracer.submit(_refusal, tid, leaks).result():
                raise UserError(f"process {pid} filters its system calls, and {reason}")


def _threads(pid: int) -> list[int]:
    try:
        return sorted(int(t.name) for t in Path(f"/proc/{pid}/task").iterdir())
    except OSError as error:
        raise UserError(f"process {pid} has ended") from error


def _are_ours(tid: int) -> bool:
    """Whether the thread has no filter but those of all processes here, of this one too: a container's."""
    counts = [names.status(one, "Seccomp_filters") for one in (tid, 1, os.getpid())]
    return all(counts) and int(counts[0][0]) <= min(int(count) for [count] in counts)


def _refusal(tid: int, leaks: bool) -> str:
    """Why an answer may end the program that runs this thread; "" if it does not."""
    try:
        programs = _filters(tid)
    except OSError as error:
        return f"only root may read whether a look would end it ({os.strerror(error.errno or 0)})"
    place = 0 if platform.machine() == "x86_64" else 1
    for name, call in (CALLS | (CALLS_OF_LEAKS if leaks else {})).items():
        data = struct.pack("=iIQ6Q", call[place], ARCHITECTURES[place], 0, *(*call[2], *[0] * 6)[:6])
        if any(run(program, data) & 0xFFFF0000 not in ALLOWED for program in programs):
            return f"{name}, which a look needs, would end it; start it with what it shall show (docs/OBSERVABILITY.md)"
    return ""


def _filters(tid: int) -> list[list[tuple[int, int, int, int]]]:
    _ptrace(PTRACE_SEIZE, tid)
    _ptrace(PTRACE_INTERRUPT, tid)
    until = time.monotonic() + STOP_S
    while (status := os.waitpid(tid, WAIT_ALL | os.WNOHANG)[1]) >> 16 != PTRACE_EVENT_STOP:
        if status and not os.WIFSTOPPED(status):
            raise _Vanished
        if status:  # it stopped for a signal
            _ptrace(PTRACE_CONT, tid, 0, os.WSTOPSIG(status))
        if time.monotonic() > until:
            raise OSError(errno.EBUSY, "a thread does not stop to be asked")
        time.sleep(0.0001)
    found: list[list[tuple[int, int, int, int]]] = []
    while (count := _ptrace(PTRACE_SECCOMP_GET_FILTER, tid, len(found))) >= 0:
        buffer = ctypes.create_string_buffer(count * INSTRUCTION.size)
        _ptrace(PTRACE_SECCOMP_GET_FILTER, tid, len(found), ctypes.addressof(buffer))
        found.append(list(INSTRUCTION.iter_unpack(buffer.raw)))
    return found


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    """The system call's result; -1 for a filter that there is none of."""
    result = int(_libc.ptrace(request, tid, address, data))
    number = ctypes.get_errno()
    if result == -1 and number != errno.ENOENT:
        raise _Vanished if number == errno.ESRCH else OSError(number, os.strerror(number))
    return result


def run(program: list[tuple[int, int, int, int]], data: bytes) -> int:
    """What a filter answers to a call that `data` describes (struct seccomp_data)."""
    a = x = at = 0
    memory = [0] * 16
    while True:
        code, if_true, if_false, k = program[at]
        at += 1
        kind, value = code & 7, x if code & 8 else k
        if kind in (0, 1):  # load
            mode = code & 0xE0
            loaded = k if mode == 0 else memory[k] if mode == 0x60 else len(data) if mode == 0x80 else -1
            if loaded < 0:
                loaded = struct.unpack_from("=I", data, k)[0]
            a, x = (loaded, x) if kind == 0 else (a, loaded)
        elif kind in (2, 3):
            memory[k] = a if kind == 2 else x
        elif kind == 4:
            a = _computed(code & 0xF0, a, value) & 0xFFFFFFFF
        elif kind == 5:
            how = code & 0xF0
            if how == 0:
                at += k
            else:
                met = {0x10: a == value, 0x20: a > value, 0x30: a >= value, 0x40: a & value != 0}[how]
                at += if_true if met else if_false
        elif kind == 6:
            return a if code & 0x18 == 0x10 else k
        else:
            a, x = (a, a) if code & 0xF8 == 0 else (x, x)


def _computed(operation: int, a: int, value: int) -> int:
    match operation:
        case 0x00:
            return a + value
        case 0x10:
            return a - value
        case 0x20:
            return a * value
        case 0x30:
            return a // value if value else 0
        case 0x40:
            return a | value
        case 0x50:
            return a & value
        case 0x60:
            return a << value
        case 0x70:
            return a >> value
        case 0x80:
            return -a
        case _:
            return a ^ value
