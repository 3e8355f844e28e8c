"""What a program's filter of system calls (seccomp) would do with the calls that a look needs.

The kernel gives the filters to a debugger with all rights. They are classic BPF: a few kinds of instructions, run here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from freestone_lab.heap import tracing, visiting
from freestone_lab.heap.tracing import Thread

PTRACE_SECCOMP_GET_FILTER = 0x420C
INSTRUCTION = struct.Struct("=HBBI")  # code, jumps if true and if false, operand
ALLOWED = (0x7FFF0000, 0x7FFC0000, 0x00050000)  # let through, written down, refused with an error: these end nothing
AT_FDCWD = 2**64 - 100
ARCHITECTURES = {27: 0xC000003E, 34: 0xC00000B7}  # by the number of registers, as in tracing.MACHINES

# Number on x86-64, on aarch64, and the arguments of what a look asks for: reading /proc, memory for the answer, the
# live page, and the mask of signals that comes back.
CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "openat": (257, 56, (AT_FDCWD, 0, 0x80000)),
    "read": (0, 63, ()),
    "pread64": (17, 67, ()),
    "lseek": (8, 62, ()),
    "close": (3, 57, ()),
    "mmap": (9, 222, (0, 4096, 3, 0x22)),
    "mremap": (25, 216, ()),
    "munmap": (11, 215, ()),
    "ftruncate": (77, 46, ()),
    "unlinkat": (263, 35, (AT_FDCWD,)),
    "getpid": (39, 172, ()),
    "gettid": (186, 178, ()),
    "rt_sigprocmask": (14, 135, (2, 0, 0, 8)),
    "rt_sigreturn": (15, 139, ()),
}


def are_ours(pid: int, tid: int) -> bool:
    """Whether the thread has no filter but those of all processes here, of this one too: a container's."""
    own = os.getpid()
    counts = [visiting.status_of(*place, "Seccomp_filters") for place in ((pid, tid), (1, 1), (own, own))]
    return all(counts) and int(counts[0]) <= min(map(int, counts))


def refusal(thread: Thread) -> str:
    """Why a look may end the program that runs this thread; "" if it does not."""
    thread.seize()
    if not thread.stop():
        return "a thread of it does not stop to be asked"
    try:
        programs = _filters(thread.tid)
    except OSError as error:
        return f"only root may read whether a look would end it ({os.strerror(error.errno or 0)})"
    finally:
        thread.let_go()
    place = 0 if thread.machine is tracing.X86 else 1
    for name, call in CALLS.items():
        data = struct.pack("=iIQ6Q", call[place], ARCHITECTURES[thread.machine.registers], 0, *(*call[2], *[0] * 6)[:6])
        if any(run(program, data) & 0xFFFF0000 not in ALLOWED for program in programs):
            return f"{name}, which a look needs, would end it; start it with what it shall show (docs/OBSERVABILITY.md)"
    return ""


def _filters(tid: int) -> list[list[tuple[int, int, int, int]]]:
    found: list[list[tuple[int, int, int, int]]] = []
    while True:
        count = tracing.ptrace(PTRACE_SECCOMP_GET_FILTER, tid, len(found), 0, missing=errno.ENOENT)
        if count < 0:
            return found
        buffer = ctypes.create_string_buffer(count * INSTRUCTION.size)
        tracing.ptrace(PTRACE_SECCOMP_GET_FILTER, tid, len(found), ctypes.addressof(buffer))
        found.append(list(INSTRUCTION.iter_unpack(buffer.raw)))


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
