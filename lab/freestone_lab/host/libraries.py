"""What a shared library says about itself, and which package owns it. Reads files and asks dpkg, but loads nothing."""

import functools
import platform
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core.elf import SHARED, TYPES, Elf, ElfError
from freestone_lab.core.errors import UserError

# The names by which programs reach an allocator. A peer that lacks one leaves its callers with glibc's.
CORE_NAMES = ("malloc", "free", "calloc", "realloc")
C_NAMES = (
    *CORE_NAMES,
    *("posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc"),
    *("malloc_usable_size", "malloc_size", "malloc_good_size", "reallocarray", "reallocf", "cfree"),
    *("free_sized", "free_aligned_sized"),
    *("malloc_trim", "malloc_stats", "malloc_info", "mallinfo", "mallinfo2", "mallopt"),
    *("mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx"),
    *("mallctl", "mallctlnametomib", "mallctlbymib", "malloc_stats_print"),
    *("malloc_iterate", "malloc_disable", "malloc_enable"),
    *("__libc_malloc", "__libc_free", "__libc_calloc", "__libc_realloc", "__libc_memalign"),
)
# The operators new and delete, of objects and of arrays, in each of their forms; delete may be told the size, too.
_FORMS = ("", "RKSt9nothrow_t", "St11align_val_t", "St11align_val_tRKSt9nothrow_t")
_OPERATORS = (
    *(f"{new}{form}" for new in ("_Znwm", "_Znam") for form in _FORMS),
    *(f"{delete}{form}" for delete in ("_ZdlPv", "_ZdaPv") for form in (*_FORMS, "m", "mSt11align_val_t")),
)
FAMILY = {*C_NAMES, *_OPERATORS}

_MACHINES = {"x86_64": "X86_64", "aarch64": "AARCH64", "riscv64": "RISCV", "ppc64le": "PPC64"}


class PeerError(UserError):
    """An allocator that cannot be used. The message is one line that names it and says what was expected."""


@dataclass(frozen=True)
class LibraryFacts:
    """What a shared library says about itself. `exports` holds only the names of the family, sorted."""

    build_id: str
    exports: tuple[str, ...]


def inspect_library(path: Path) -> LibraryFacts:
    """Reads build-id and exported names. Raises PeerError when `path` cannot be preloaded here."""
    try:
        status = path.stat()
    except OSError as error:
        raise PeerError(f"{path}: cannot be read: {error.strerror}; expected a shared library") from error
    if not path.is_file():
        raise PeerError(f"{path}: is not a file; expected a shared library")
    return _inspect(str(path), status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=256)
def _inspect(path: str, _mtime_ns: int, _size: int) -> LibraryFacts:
    try:
        with Path(path).open("rb") as stream:
            elf = Elf(stream)
            _require_loadable(path, elf)
            return LibraryFacts(elf.build_id, _exports(elf))
    except OSError as error:
        raise PeerError(f"{path}: cannot be read: {error.strerror}; expected a shared library") from error
    except ElfError as error:
        with Path(path).open("rb") as stream:
            elf_begins = stream.read(4) == b"\x7fELF"
        kind = "is an ELF file that is cut short or damaged" if elf_begins else "is not an ELF file"
        raise PeerError(f"{path}: {kind}; expected a shared library for {platform.machine()}") from error


def _require_loadable(path: str, elf: Elf) -> None:
    wanted = _MACHINES.get(platform.machine())
    if elf.bits != 64 or (wanted is not None and elf.machine != wanted):
        shown = f"{elf.machine}, {elf.bits} bit"
        raise PeerError(f"{path}: is built for {shown}; expected a library for {platform.machine()}, 64 bit")
    if elf.kind != SHARED or not elf.has(".dynsym"):
        kind = TYPES.get(elf.kind, f"kind {elf.kind}")
        raise PeerError(f"{path}: is an ELF file, but a {kind} without exported names; expected a shared library")


def _exports(elf: Elf) -> tuple[str, ...]:
    found = {s.name for s in elf.symbols(".dynsym") if s.name in FAMILY and s.defined and s.exported}
    return tuple(sorted(found))


def owning_packages(files: Iterable[Path]) -> dict[Path, str]:
    """Maps each path that a Debian package owns to "package version". Paths that nobody owns are absent."""
    asked: dict[str, Path] = {}
    for path in files:
        for same in (path, path.resolve()):
            asked[str(same)] = path
            asked[str(same).removeprefix("/usr")] = path  # dpkg knows /lib/..., the merged system shows /usr/lib/...
    found = _owners(tuple(sorted(asked)))
    return {asked[same]: text for same, text in found.items()}


def owner(path: Path) -> str:
    return owning_packages([path]).get(path, "")


@functools.lru_cache(maxsize=32)
def _owners(paths: tuple[str, ...]) -> dict[str, str]:
    if not paths or shutil.which("dpkg-query") is None:
        return {}
    found = subprocess.run(["dpkg-query", "-S", *paths], capture_output=True, text=True, errors="surrogateescape")
    owner: dict[str, str] = {}
    for line in found.stdout.splitlines():
        packages, separator, path = line.partition(": ")
        if separator and path in paths:
            owner[path] = packages.split(",")[0].strip()
    if not owner:
        return {}
    names = sorted(set(owner.values()))
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${binary:Package} ${Version}\n", *names], capture_output=True, text=True
    )
    version = {}
    for line in shown.stdout.splitlines():
        package, _, text = line.partition(" ")
        version[package.split(":")[0]] = text
    return {path: f"{name.split(':')[0]} {version.get(name.split(':')[0], '?')}" for path, name in owner.items()}


def library_paths(library: str) -> list[Path]:
    """The files of that name or pattern in the folders of the dynamic linker of a 64-bit program, newest first."""
    folders = [f"/usr/lib/{platform.machine()}-linux-gnu", f"/lib/{platform.machine()}-linux-gnu"]
    folders += ["/usr/local/lib", "/usr/lib64", "/lib64", "/usr/lib"]
    return [path for folder in folders for path in sorted(Path(folder).glob(library), reverse=True) if path.is_file()]
