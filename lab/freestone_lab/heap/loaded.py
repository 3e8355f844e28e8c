"""Where libfreestone lies in a running process. The mappings tell the place, the file's symbols the functions."""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core.elf import SHARED, Elf, ElfError
from freestone_lab.core.errors import UserError

AT_BASE = 7  # of the auxiliary vector: where the kernel has put the dynamic linker, 0 if the program has none
LINKERS_OWN = "_r_debug"  # a symbol that a dynamic linker exports

EXPECTED = ("freestone_option_set", "freestone_prof_start", "freestone_prof_stop", "freestone_prof_dump")


@dataclass(frozen=True)
class Library:
    """Where libfreestone lies in a process: its functions, and its code as ranges of addresses."""

    path: str
    functions: dict[str, int]
    code: tuple[tuple[int, int], ...]

    def holds(self, address: int) -> bool:
        return any(start <= address < end for start, end in self.code)


def find_library(pid: int) -> Library:
    """libfreestone in the process, preloaded or linked in.

    UserError if there is none, or if its code is not what the processor runs.
    """
    files: dict[str, list[tuple[int, int, int, str]]] = {}
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except ProcessLookupError as error:
        raise UserError(f"no process has the number {pid}") from error
    except FileNotFoundError as error:
        raise UserError(f"no process has the number {pid}") from error
    except PermissionError as error:
        raise UserError(f"process {pid} belongs to another user; try it as root") from error
    for line in lines:
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            start, end = (int(x, 16) for x in words[0].split("-"))
            files.setdefault(words[5].removesuffix(" (deleted)"), []).append((start, end, int(words[2], 16), words[1]))
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")
    except OSError:
        program = ""
    for path in sorted(files, key=lambda p: ("libfreestone" not in p, p != program)):
        if "libfreestone" not in path and path != program:
            break
        start, end, _, _ = files[path][0]
        functions = _functions(Path(f"/proc/{pid}/map_files/{start:x}-{end:x}"), start)
        if not functions:
            functions = _functions(Path(f"/proc/{pid}/root{path}"), start)
        if functions:
            if path != program and not _is_run_by_the_processor(pid):
                raise UserError(
                    f"process {pid} runs under an emulator or a tool such as valgrind; a look from outside would end it"
                )
            code = tuple((start, end) for start, end, _, rights in files[path] if "x" in rights)
            return Library(path, functions, code)
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


def _functions(path: Path, mapped_at: int) -> dict[str, int]:
    """The addresses of the functions that a debugger may call; empty when the file is not libfreestone."""
    try:
        with path.open("rb") as file:
            image = Elf(file)
            if image.machine != platform.machine().upper():
                return {}
            first = min(segment.address for segment in image.segments)
            base = mapped_at - first // 4096 * 4096 if image.kind == SHARED else 0
            symbols = image.symbols(".dynsym", ".symtab")
            found = {x.name: base + x.address for x in symbols if x.defined and x.name.startswith("freestone_")}
    except (OSError, ElfError, ValueError):
        return {}
    return found if all(name in found for name in EXPECTED) else {}
