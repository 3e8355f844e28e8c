"""Where libfreestone lies in a running process. The mappings tell the place, the file's symbols what lies where."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from freestone_lab.core.elf import SHARED, Elf, ElfError
from freestone_lab.core.errors import UserError
from freestone_lab.measure import tree

# allocator/src/upkeep/request.h
NAMES = "freestone_request", "freestone_attention", "freestone_caches", "freestone_places"
PAGE = 4096


@dataclass(frozen=True)
class Library:
    """Where libfreestone takes requests in a process, and says where its counters lie."""

    request: int
    attention: int
    caches: int
    places: int


def no_right(pid: int) -> UserError:
    if os.geteuid() == 0:
        return UserError(f"process {pid} may not be looked at: root has no right to trace it here (CAP_SYS_PTRACE)")
    return UserError(
        f"process {pid} may not be looked at; try it as root, or with /proc/sys/kernel/yama/ptrace_scope set to 0 and "
        "as the same user"
    )


def memory_of(pid: int) -> BinaryIO:
    """The memory of what the process runs now. After execve it is empty, as after the end."""
    try:
        return Path(f"/proc/{pid}/mem").open("r+b", buffering=0)
    except FileNotFoundError as error:
        raise UserError(f"no process has the number {pid}") from error
    except PermissionError as error:
        raise no_right(pid) from error


def find_library(pid: int, memory: BinaryIO) -> Library:
    """libfreestone in the process, preloaded or linked in. UserError if there is none."""
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
    program = (tree.executable(pid) or "").removesuffix(" (deleted)")
    for path in sorted(files, key=lambda p: ("libfreestone" not in p, p != program)):
        if "libfreestone" not in path and path != program:
            break
        start, end = files[path]
        head = os.pread(memory.fileno(), PAGE, start)
        images = Path(f"/proc/{pid}/map_files/{start:x}-{end:x}"), Path(f"/proc/{pid}/root{path}")
        found = [places for image in images if (places := _places(image, start, head)) is not None]
        if "libfreestone" in path and not found:
            raise UserError(f"process {pid} runs under another build than the file {path} has now; try it as root")
        for places in found:
            if places.keys() >= set(NAMES):
                return Library(*(places[name] for name in NAMES))
        if "libfreestone" in path:
            raise UserError(f"process {pid} runs under another version of libfreestone than this tool's")
    raise UserError(f"process {pid} does not run under libfreestone; start it with 'freestone run -- CMD'")


def _places(path: Path, mapped_at: int, head: bytes) -> dict[str, int] | None:
    """Where libfreestone's names lie. None if the file cannot be read, or is another than the one that is mapped.

    The first page has the build-id.
    """
    try:
        with path.open("rb") as file:
            image = Elf(file)
            file.seek(0)
            if image.machine != platform.machine().upper() or file.read(PAGE) != head:
                return None
            first = min(segment.address for segment in image.segments)
            base = mapped_at - first // PAGE * PAGE if image.kind == SHARED else 0
            ours = (x for x in image.symbols(".dynsym", ".symtab") if x.name.startswith("freestone_"))
            return {x.name: base + x.address for x in ours if x.defined}
    except (OSError, ElfError, ValueError):
        return None
