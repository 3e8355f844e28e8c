"""Where libfreestone lies in a running process. The mappings tell the place, the file's symbols the functions."""

from __future__ import annotations

import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core.elf import SHARED, Elf, ElfError
from freestone_lab.core.errors import UserError

AT_BASE = 7  # of the auxiliary vector: where the kernel has put the dynamic linker, 0 if the program has none
LINKERS_OWN = "_r_debug"  # a symbol that a dynamic linker exports

ROOM, ENTRY = "freestone_visit", "freestone_visit_enter"


@dataclass(frozen=True)
class Library:
    """Where libfreestone keeps its room for visits in a process, and where a visit begins."""

    path: str
    room: int
    room_end: int
    entry: int
    entry_end: int


def no_right(pid: int) -> UserError:
    if os.geteuid() == 0:
        return UserError(f"process {pid} may not be looked at: root has no right to trace it here (CAP_SYS_PTRACE)")
    return UserError(
        f"process {pid} may not be looked at; try it as root, or with /proc/sys/kernel/yama/ptrace_scope set to 0 and "
        "as the same user"
    )


def find_library(pid: int) -> Library:
    """libfreestone in the process, preloaded or linked in.

    UserError if there is none, or if its code is not what the processor runs.
    """
    files: dict[str, tuple[int, int]] = {}
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except (ProcessLookupError, FileNotFoundError) as error:
        raise UserError(f"no process has the number {pid}") from error
    except PermissionError as error:
        raise no_right(pid) from error
    for line in lines:
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            start, end = (int(x, 16) for x in words[0].split("-"))
            files.setdefault(words[5].removesuffix(" (deleted)"), (start, end))
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        program = ""
    for path in sorted(files, key=lambda p: ("libfreestone" not in p, p != program)):
        if "libfreestone" not in path and path != program:
            break
        start, end = files[path]
        places = _places(Path(f"/proc/{pid}/map_files/{start:x}-{end:x}"), start)
        if not places:
            places = _places(Path(f"/proc/{pid}/root{path}"), start)
        if "libfreestone" in path and places and ROOM not in places:
            raise UserError(f"process {pid} runs under another version of libfreestone than this tool's")
        if ROOM in places and ENTRY in places:
            if path != program and not _is_run_by_the_processor(pid):
                raise UserError(
                    f"process {pid} runs under an emulator or a tool such as valgrind; a look from outside would end it"
                )
            return Library(path, *places[ROOM], *places[ENTRY])
    raise UserError(f"process {pid} does not run under libfreestone; start it with 'freestone run -- CMD'")


def _is_run_by_the_processor(pid: int) -> bool:
    """Whether the process's own dynamic linker can have loaded the library.

    Valgrind and qemu map the program's files, too, but run a translation of them: their own program is a static one.
    """
    try:
        words = Path(f"/proc/{pid}/auxv").read_bytes()
        vector = dict(struct.iter_unpack("=QQ", words[: len(words) // 16 * 16]))
        if vector.get(AT_BASE, 0) != 0:
            return True
        with Path(f"/proc/{pid}/exe").open("rb") as file:  # perhaps the linker itself, started as a program
            return any(symbol.name == LINKERS_OWN and symbol.exported for symbol in Elf(file).symbols(".dynsym"))
    except (OSError, ElfError):
        return True  # it may not be traced either


def _places(path: Path, mapped_at: int) -> dict[str, tuple[int, int]]:
    """From where to where libfreestone's exported names reach; empty when the file cannot be read."""
    try:
        with path.open("rb") as file:
            image = Elf(file)
            if image.machine != platform.machine().upper():
                return {}
            first = min(segment.address for segment in image.segments)
            base = mapped_at - first // 4096 * 4096 if image.kind == SHARED else 0
            return {
                x.name: (base + x.address, base + x.address + x.size)
                for x in image.symbols(".dynsym", ".symtab")
                if x.defined and x.name.startswith("freestone_")
            }
    except (OSError, ElfError, ValueError):
        return {}
