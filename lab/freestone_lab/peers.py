"""Finds the allocators that a program can be run under, and says what each of them is.

Sources, in the order of the table: glibc; the libraries of this repository's build; the distribution's packages;
clang's runtime (scudo); libraries that `freestone peers install` built; the control allocators; `NAME=path.so` given
by the user. Nothing here is loaded into this process: files are read with pyelftools, packages are asked of dpkg.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from freestone_lab import paths
from freestone_lab.errors import UserError
from freestone_lab.model import Peer, PeerKind

LIBC_PEER = "glibc"

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
OPERATOR_NAMES: dict[str, str] = {
    "_Znwm": "new",
    "_Znam": "new[]",
    "_ZnwmRKSt9nothrow_t": "new nothrow",
    "_ZnamRKSt9nothrow_t": "new[] nothrow",
    "_ZnwmSt11align_val_t": "new aligned",
    "_ZnamSt11align_val_t": "new[] aligned",
    "_ZnwmSt11align_val_tRKSt9nothrow_t": "new aligned nothrow",
    "_ZnamSt11align_val_tRKSt9nothrow_t": "new[] aligned nothrow",
    "_ZdlPv": "delete",
    "_ZdaPv": "delete[]",
    "_ZdlPvm": "delete sized",
    "_ZdaPvm": "delete[] sized",
    "_ZdlPvRKSt9nothrow_t": "delete nothrow",
    "_ZdaPvRKSt9nothrow_t": "delete[] nothrow",
    "_ZdlPvSt11align_val_t": "delete aligned",
    "_ZdaPvSt11align_val_t": "delete[] aligned",
    "_ZdlPvmSt11align_val_t": "delete sized aligned",
    "_ZdaPvmSt11align_val_t": "delete[] sized aligned",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t": "delete aligned nothrow",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t": "delete[] aligned nothrow",
}
FAMILY = frozenset(C_NAMES) | frozenset(OPERATOR_NAMES)

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64", "riscv64": "EM_RISCV", "ppc64le": "EM_PPC64"}


class PeerError(UserError):
    """An allocator that cannot be used; the message is one line that names it and says what was expected."""


@dataclass(frozen=True)
class LibraryFacts:
    """What a shared library says of itself: `exports` holds the family's names only, sorted."""

    build_id: str
    exports: tuple[str, ...]


@dataclass(frozen=True)
class PackagedPeer:
    """An allocator that the distribution carries: the library's name below any library folder, and its package."""

    name: str
    library: str
    package: str
    note: str = ""


PACKAGED = (
    PackagedPeer("jemalloc-deb", "libjemalloc.so.2", "libjemalloc2"),
    PackagedPeer(
        "gperftools", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4", "tcmalloc of gperftools, without its profiler"
    ),
    PackagedPeer("mimalloc-deb", "libmimalloc.so.2", "libmimalloc2.0"),
    PackagedPeer("tbbmalloc", "libtbbmalloc_proxy.so.2", "libtbbmalloc2", "replaces malloc through its proxy library"),
)
SCUDO_PACKAGE = "libclang-rt-19-dev"
_SCUDO_PATTERN = "llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-{machine}.so"


@dataclass(frozen=True)
class ControlPeer:
    """An allocator with one known property, by which the lab is tested."""

    name: str
    file: str
    note: str
    env: tuple[tuple[str, str], ...] = ()


CONTROLS = (
    ControlPeer("passthrough", "libcontrol-passthrough.so", "forwards every call to glibc"),
    ControlPeer("null", "libcontrol-null.so", "bump allocation, never frees: the workload's own cost"),
    ControlPeer(
        "slow",
        "libcontrol-slow.so",
        "glibc with a fixed delay of FREESTONE_CONTROL_SLOW_NS at each allocation and free",
    ),
    ControlPeer("leaking", "libcontrol-leaking.so", "glibc, but every FREESTONE_CONTROL_EVERY-th free is forgotten"),
    ControlPeer("crashing", "libcontrol-crashing.so", "aborts at the first call"),
    ControlPeer("returning-null", "libcontrol-returning-null.so", "NULL after FREESTONE_CONTROL_AFTER allocations"),
    ControlPeer(
        "corrupting",
        "libcontrol-corrupting.so",
        "flips a byte of a live block every FREESTONE_CONTROL_EVERY allocations",
    ),
    ControlPeer("not-loading", "libcontrol-not-loading.so", "exports no malloc: the program stays on glibc"),
)

# A plain family name means its newest variant that is present.
ALIASES: dict[str, tuple[str, ...]] = {
    "libc": (LIBC_PEER,),
    "system": (LIBC_PEER,),
    "jemalloc": ("jemalloc", "jemalloc-deb"),
    "mimalloc": ("mimalloc", "mimalloc-v2", "mimalloc-deb"),
    "tcmalloc": ("tcmalloc", "gperftools"),
    "tbb": ("tbbmalloc",),
    "hardened_malloc": ("hardened-malloc",),
}


def cache_folder() -> Path:
    """The folder that holds what `freestone peers install` builds: one folder per peer, with its peer.json."""
    explicit = os.environ.get("FREESTONE_PEERS_DIR")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "freestone" / "peers"


def build_folder() -> Path | None:
    """Where this repository's own libraries are; None outside a repository."""
    explicit = os.environ.get("FREESTONE_BUILD_DIR")
    if explicit:
        return Path(explicit)
    try:
        return paths.build_dir()
    except UserError:
        return None


def inspect_library(path: Path) -> LibraryFacts:
    """Reads build-id, exported names and needed libraries. Raises PeerError when `path` cannot be preloaded here."""
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
            elf = ELFFile(stream)
            _require_loadable(path, elf)
            return LibraryFacts(_build_id(elf), _exports(elf))
    except OSError as error:
        raise PeerError(f"{path}: cannot be read: {error.strerror}; expected a shared library") from error
    except ELFError as error:
        raise PeerError(f"{path}: is not an ELF file; expected a shared library for {platform.machine()}") from error


def _require_loadable(path: str, elf: ELFFile) -> None:
    wanted = _MACHINES.get(platform.machine())
    found = elf["e_machine"]
    if elf.elfclass != 64 or (wanted is not None and found != wanted):
        shown = f"{str(found).removeprefix('EM_')}, {elf.elfclass} bit"
        raise PeerError(f"{path}: is built for {shown}; expected a library for {platform.machine()}, 64 bit")
    if elf["e_type"] != "ET_DYN" or elf.get_section_by_name(".dynsym") is None:
        raise PeerError(f"{path}: is an ELF file of type {elf['e_type']}; expected a shared library")


def _build_id(elf: ELFFile) -> str:
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return str(note["n_desc"])
    return ""


def _exports(elf: ELFFile) -> tuple[str, ...]:
    table = elf.get_section_by_name(".dynsym")
    assert isinstance(table, SymbolTableSection)
    names = {
        symbol.name
        for symbol in table.iter_symbols()
        if symbol.name in FAMILY
        and symbol["st_shndx"] != "SHN_UNDEF"
        and symbol["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK", "STB_LOOS")
        and symbol["st_other"]["visibility"] in ("STV_DEFAULT", "STV_PROTECTED")
    }
    return tuple(sorted(names))


def owning_packages(files: Iterable[Path]) -> dict[Path, str]:
    """Maps each path that a Debian package owns to "package version". Paths that nobody owns are absent."""
    asked: dict[str, Path] = {}
    for path in files:
        for same in (path, path.resolve()):
            asked[str(same)] = path
            asked[str(same).removeprefix("/usr")] = path  # dpkg knows /lib/..., the merged system shows /usr/lib/...
    found = _owners(tuple(sorted(asked)))
    return {asked[same]: text for same, text in found.items()}


def _owner(path: Path) -> str:
    return owning_packages([path]).get(path, "")


@functools.lru_cache(maxsize=32)
def _owners(paths: tuple[str, ...]) -> dict[str, str]:
    if not paths or shutil.which("dpkg-query") is None:
        return {}
    found = subprocess.run(["dpkg-query", "-S", *paths], capture_output=True, text=True, check=False)
    owner: dict[str, str] = {}
    for line in found.stdout.splitlines():
        packages, separator, path = line.partition(": ")
        if separator and path in paths:
            owner[path] = packages.split(",")[0].strip()
    if not owner:
        return {}
    names = sorted(set(owner.values()))
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${binary:Package} ${Version}\n", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    version = {}
    for line in shown.stdout.splitlines():
        package, _, text = line.partition(" ")
        version[package.split(":")[0]] = text
    return {path: f"{name.split(':')[0]} {version.get(name.split(':')[0], '?')}" for path, name in owner.items()}


def library_paths(library: str) -> list[Path]:
    """The files of that name in the folders where the dynamic linker of a 64-bit program looks."""
    folders = [f"/usr/lib/{platform.machine()}-linux-gnu", f"/lib/{platform.machine()}-linux-gnu"]
    folders += ["/usr/local/lib", "/usr/lib64", "/lib64", "/usr/lib"]
    return [path for path in (Path(folder) / library for folder in folders) if path.is_file()]


def _from_file(
    name: str,
    path: Path,
    kind: PeerKind = "preload",
    *,
    version: str = "",
    origin: str = "",
    note: str = "",
    env: tuple[tuple[str, str], ...] = (),
) -> Peer:
    facts = inspect_library(path)
    return Peer(name, str(path), kind, version, origin, facts.build_id, facts.exports, env, note)


def _glibc() -> Peer:
    libc = ctypes.CDLL(None)
    libc.gnu_get_libc_version.restype = ctypes.c_char_p
    version = libc.gnu_get_libc_version().decode()
    files = library_paths("libc.so.6")
    if not files:
        return Peer(name=LIBC_PEER, path=None, kind="libc", version=version)
    facts = inspect_library(files[0])
    return Peer(
        name=LIBC_PEER,
        path=None,
        kind="libc",
        version=version,
        origin=_owner(files[0]),
        build_id=facts.build_id,
        exports=facts.exports,
        note="the program's own allocator: nothing is preloaded",
    )


def _freestone() -> list[Peer]:
    folder = build_folder()
    files = [] if folder is None else [folder / "libfreestone.so", folder / "libfreestone-hardened.so"]
    return [
        _from_file(
            path.stem.removeprefix("lib"), path, version=freestone_version(path), origin=f"built in {path.parent}"
        )
        for path in files
        if path.is_file()
    ]


def freestone_version(path: Path) -> str:
    """What `freestone_version()` of that library answers, asked in a process of its own; "" when it does not answer."""
    program = (
        "import ctypes,sys\n"
        "f=ctypes.CDLL(sys.argv[1]).freestone_version\nf.restype=ctypes.c_char_p\nprint((f() or b'').decode())"
    )
    command = [sys.executable, "-S", "-E", "-c", program, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _packaged() -> list[Peer]:
    present = [(entry, files[0]) for entry in PACKAGED if (files := library_paths(entry.library))]
    owners = owning_packages(path for _, path in present)
    found = []
    for entry, path in present:
        owner = owners.get(path, "")
        version = _upstream(owner.partition(" ")[2])
        found.append(_from_file(entry.name, path, version=version, origin=owner, note=entry.note))
    return found


def _upstream(debian: str) -> str:
    """The upstream part of a Debian version: "1:5.3.0-1" is "5.3.0"."""
    return re.sub(r"-[^-]*$", "", debian.partition(":")[2] if ":" in debian else debian).split("+")[0].split("~")[0]


def _scudo() -> list[Peer]:
    files = sorted(Path("/usr/lib").glob(_SCUDO_PATTERN.format(machine=platform.machine())), key=_numbers)
    if not files:
        return []
    path = files[-1]
    owner = _owner(path)
    return [
        _from_file("scudo", path, version=_upstream(owner.partition(" ")[2]), origin=owner, note="LLVM's, standalone")
    ]


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _installed() -> list[Peer]:
    found = []
    for description in sorted(cache_folder().glob("*/peer.json")):
        try:
            raw = json.loads(description.read_text())
            found.append(
                _from_file(
                    str(raw["name"]),
                    description.parent / str(raw["library"]),
                    version=str(raw["version"]),
                    origin=str(raw["origin"]),
                    note=str(raw.get("note", "")),
                    env=tuple((str(key), str(value)) for key, value in raw.get("env", {}).items()),
                )
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a half-written or broken build is not a peer; `freestone peers install` makes it anew
    return found


def _controls() -> list[Peer]:
    folders = [folder for folder in (build_folder(), cache_folder() / "controls") if folder is not None]
    found = []
    for control in CONTROLS:
        path = next((folder / control.file for folder in folders if (folder / control.file).is_file()), None)
        if path is not None:
            found.append(
                _from_file(control.name, path, "control", origin="control", note=control.note, env=control.env)
            )
    return found


def from_spec(spec: str) -> Peer:
    """The peer that `NAME=path.so` describes. Raises PeerError when it cannot serve a program's malloc."""
    name, separator, text = spec.partition("=")
    if not separator or not text or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise PeerError(f"{spec!r}: expected NAME=path.so, NAME of letters, digits and . _ + -")
    path = Path(text).expanduser().absolute()
    facts = inspect_library(path)
    missing = [wanted for wanted in CORE_NAMES if wanted not in facts.exports]
    if "malloc" in missing:
        raise PeerError(f"{path}: exports no malloc, so a program would stay on glibc; expected an allocator")
    note = f"exports no {', '.join(missing)}: those calls reach glibc" if missing else ""
    owner = _owner(path)
    return _from_file(name, path, version=_upstream(owner.partition(" ")[2]), origin=owner or "given", note=note)


def discover(extra: Sequence[str] = (), *, only: Sequence[str] = ()) -> list[Peer]:
    """Every allocator of this machine, then those of `extra` (`NAME=path.so`, which replaces an equal name).

    With `only`, just those, in that order; an entry may be a name, a family name (`jemalloc`) or `NAME=path.so`.
    Raises PeerError for a name that is not there and for a library that cannot be used.
    """
    table: dict[str, Peer] = {}
    for peer in [_glibc(), *_freestone(), *_packaged(), *_scudo(), *_installed(), *_controls()]:
        table.setdefault(peer.name, peer)
    for spec in extra:
        given = from_spec(spec)
        table[given.name] = given
    if not only:
        return list(table.values())
    chosen = {peer.name: peer for peer in (_resolve(name, table) for name in only)}
    return list(chosen.values())


def find(name_or_spec: str) -> Peer:
    """One allocator by name, family name or `NAME=path.so`. Raises PeerError when there is none."""
    if "=" in name_or_spec:
        return from_spec(name_or_spec)
    return discover(only=[name_or_spec])[0]


def _resolve(name: str, table: dict[str, Peer]) -> Peer:
    if "=" in name:
        return from_spec(name)
    for candidate in (name, *ALIASES.get(name, ())):
        if candidate in table:
            return table[candidate]
    hint = "; `freestone peers install` adds more" if name not in {control.name for control in CONTROLS} else ""
    raise PeerError(f"no allocator is named {name!r}; expected NAME=path.so or one of {', '.join(table)}{hint}")


def preload_environment(peer: Peer) -> dict[str, str]:
    """The variables that run a program under `peer`: to be laid over the program's own environment."""
    env = dict(peer.env)
    if peer.path is not None:
        env["LD_PRELOAD"] = peer.path
    return env
