"""Finds the allocators that can serve a program, and says what each of them is.

Sources, in the order of the table: glibc; the libraries of this repository's build; the distribution's packages;
clang's runtime (scudo); libraries that `freestone peers install` built; the control allocators; `NAME=path.so` from the
user. It loads nothing into this process: it reads files and asks dpkg about packages.
"""

import contextlib
import ctypes
import difflib
import functools
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer, PeerKind
from freestone_lab.host.libraries import CORE_NAMES as CORE_NAMES
from freestone_lab.host.libraries import PeerError as PeerError
from freestone_lab.host.libraries import inspect_library, owner, owning_packages
from freestone_lab.host.libraries import library_paths as library_paths
from freestone_lab.measure import proof

LIBC_PEER = "glibc"
DESCRIPTION = "peer.json"  # in a peer's folder


@dataclass(frozen=True)
class PackagedPeer:
    """An allocator that the distribution carries: a pattern of its name below any library folder, and a package that
    brings it: releases rename the libraries' own packages, and apt installs nothing where it does not know one name.
    """

    name: str
    library: str
    package: str
    note: str = ""


PACKAGED = (
    PackagedPeer("jemalloc-deb", "libjemalloc.so.2", "libjemalloc2"),
    PackagedPeer(
        "gperftools", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4", "tcmalloc of gperftools, without its profiler"
    ),
    PackagedPeer("mimalloc-deb", "libmimalloc.so.[23]", "libmimalloc-dev"),
    PackagedPeer("tbbmalloc", "libtbbmalloc_proxy.so.2", "libtbbmalloc2", "replaces malloc through its proxy library"),
)
SCUDO_PACKAGE = "libclang-rt-19-dev"
_SCUDO_PATTERN = "llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-{machine}.so"


# Allocators with one known property, which serve to test the lab: a name, and what it does.
CONTROLS = {
    "passthrough": "forwards every call to glibc",
    "null": "bump allocation, never frees: the workload's own cost",
    "costly": "glibc with FREESTONE_CONTROL_CPU_PERMILLE and FREESTONE_CONTROL_MEMORY_PERMILLE thousandths on top",
    "leaking": "glibc, but every FREESTONE_CONTROL_EVERY-th free is forgotten",
    "crashing": "aborts at the first call",
    "returning-null": "NULL after FREESTONE_CONTROL_AFTER allocations",
    "corrupting": "flips a byte of a live block every FREESTONE_CONTROL_EVERY allocations",
    "not-loading": "exports no malloc: the program stays on glibc",
}


@dataclass(frozen=True)
class Setting:
    """A peer with an environment: how it runs best (`name` is `of`), or as a row of its own beside it."""

    name: str
    of: str
    env: tuple[tuple[str, str], ...]
    note: str


SETTINGS = (
    Setting(
        "tcmalloc", "tcmalloc", (("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),),
        "caches per processor: glibc leaves restartable sequences to it",
    ),
    Setting("mimalloc-no-thp", "mimalloc", (("MIMALLOC_ALLOW_THP", "0"),), "without huge pages"),
)  # fmt: skip

# A plain family name means its newest variant that is present; the first is the newest there is.
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


def _from_file(name: str, path: Path, kind: PeerKind = "preload", **said: Any) -> Peer:
    """The peer, with what is said of it: version, origin, note, env."""
    facts = inspect_library(path)
    return Peer(name, str(path), kind, build_id=facts.build_id, exports=facts.exports, **said)


@contextlib.contextmanager
def _unreadable_is_left_out() -> Iterator[None]:
    """A library that is broken or being written costs its own row, not the whole list. It is reported once."""
    try:
        yield
    except PeerError as error:
        _say_left_out(str(error))


@functools.cache
def _say_left_out(text: str) -> None:
    print(f"freestone: left out: {text}", file=sys.stderr)


def _glibc() -> Peer:
    libc = ctypes.CDLL(None)
    libc.gnu_get_libc_version.restype = ctypes.c_char_p
    version = libc.gnu_get_libc_version().decode()
    files = library_paths("libc.so.6")
    if not files:
        return Peer(LIBC_PEER, None, "libc", version)
    peer = _from_file(LIBC_PEER, files[0], "libc", version=version, origin=owner(files[0]))
    return replace(peer, path=None, note="the program's own allocator: nothing is preloaded")


def _freestone() -> list[Peer]:
    folder = build_folder()
    files = [] if folder is None else [folder / "libfreestone.so", folder / "libfreestone-hardened.so"]
    found = []
    for path in files:
        if path.is_file():
            with _unreadable_is_left_out():
                origin = f"built in {path.parent}"
                name = path.stem.removeprefix("lib")
                found.append(_from_file(name, path, version=freestone_version(path), origin=origin))
    return found


def freestone_version(path: Path) -> str:
    """What `freestone_version()` of that library returns, in a process of its own; "" if it does not answer."""
    program = (
        "import ctypes,sys\n"
        "f=ctypes.CDLL(sys.argv[1]).freestone_version\nf.restype=ctypes.c_char_p\nprint((f() or b'').decode())"
    )
    command = [sys.executable, "-S", "-E", "-c", program, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _packaged() -> list[Peer]:
    present = [(entry, files[0]) for entry in PACKAGED if (files := library_paths(entry.library))]
    owners = owning_packages(path for _, path in present)
    found = []
    for entry, path in present:
        found += _of_package(entry.name, path, owners.get(path, ""), entry.note)
    return found


def _of_package(name: str, path: Path, package: str, note: str) -> list[Peer]:
    with _unreadable_is_left_out():
        return [_from_file(name, path, version=_upstream(package.partition(" ")[2]), origin=package, note=note)]
    return []


def _upstream(debian: str) -> str:
    """The upstream part of a Debian version: "1:5.3.0-1" is "5.3.0"."""
    return re.sub(r"-[^-]*$", "", debian.partition(":")[2] if ":" in debian else debian).split("+")[0].split("~")[0]


def _scudo() -> list[Peer]:
    files = sorted(Path("/usr/lib").glob(_SCUDO_PATTERN.format(machine=platform.machine())), key=_numbers)
    return _of_package("scudo", files[-1], owner(files[-1]), "LLVM's, standalone") if files else []


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _described(folder: Path, name: str = "") -> Peer:
    """The peer that the folder's peer.json describes."""
    try:
        raw = json.loads((folder / DESCRIPTION).read_text())
        defaults = {"version": "", "origin": "given", "note": ""}
        said: dict[str, Any] = {key: str(raw.get(key, default)) for key, default in defaults.items()}
        env = tuple((str(key), str(value)) for key, value in raw.get("env", {}).items())
        return _from_file(name or str(raw["name"]), folder / str(raw["library"]), **said, env=env)
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise PeerError(f"{folder / DESCRIPTION}: expected library and what else there is: {error}") from None


def _installed() -> list[Peer]:
    found: list[Peer] = []
    descriptions: list[Path] = []
    with contextlib.suppress(PermissionError):  # HOME is still another user's, as after `su`
        descriptions = sorted(cache_folder().glob(f"*/{DESCRIPTION}"))
    for description in descriptions:
        # A half-written or broken build is not a peer; `freestone peers install` makes it anew.
        with contextlib.suppress(PeerError):
            found.append(_described(description.parent))
    return found


def _set(found: Sequence[Peer]) -> list[Peer]:
    """The peers at their best, each followed by what SETTINGS makes of it."""
    made = []
    for peer in found:
        own = {s.name: replace(peer, name=s.name, env=(*s.env, *peer.env), note=f"{peer.note}; {s.note}".strip("; "))
               for s in SETTINGS if s.of == peer.name}  # fmt: skip
        made += [own.pop(peer.name, peer), *own.values()]
    return made


def outdated(names: Collection[str]) -> list[str]:
    """Of each family in `names`, the newest member that `freestone peers install` builds, if it is not among them."""
    older = {old: newest for newest, *others in ALIASES.values() for old in others}
    return [new for new in dict.fromkeys(older.get(n, "") for n in names) if new and new not in names]


def _controls() -> list[Peer]:
    folders = [folder for folder in (build_folder(), cache_folder() / "controls") if folder is not None]
    found = []
    for name, note in CONTROLS.items():
        path = next((p for folder in folders if (p := folder / f"libcontrol-{name}.so").is_file()), None)
        if path is not None:
            with _unreadable_is_left_out():
                found.append(_from_file(name, path, "control", origin="control", note=note))
    return found


def from_spec(spec: str) -> Peer:
    """The peer that `NAME=path.so` describes. Raises PeerError when it cannot serve a program's malloc.

    The path may be a folder: with a peer.json (library, env, version, note), or with one library that exports malloc.
    """
    name, separator, text = spec.partition("=")
    if not separator or not text or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise PeerError(f"{spec!r}: expected NAME=path.so, NAME of letters, digits and . _ + -")
    path = Path(text).expanduser().absolute()
    if (path / DESCRIPTION).is_file():
        return _described(path, name)
    if path.is_dir():
        path = _library_in(path)
    facts = inspect_library(path)
    missing = [wanted for wanted in CORE_NAMES if wanted not in facts.exports]
    if "malloc" in missing:
        raise PeerError(f"{path}: exports no malloc, so a program would stay on glibc; expected an allocator")
    note = f"exports no {', '.join(missing)}: those calls reach glibc" if missing else ""
    package = owner(path)
    unknown = f"build {facts.build_id[:12] or 'unknown'}"
    version = _upstream(package.partition(" ")[2]) or freestone_version(path) or unknown
    return _from_file(name, path, version=version, origin=package or "given", note=note)


def _library_in(folder: Path) -> Path:
    """The one library of a folder, such as a build's, that exports malloc."""
    found: dict[Path, Path] = {}
    for path in (p for part in ("", "lib", ".libs") for p in sorted((folder / part).glob("*.so*"))):
        with contextlib.suppress(PeerError):
            if "malloc" in inspect_library(path).exports:
                found.setdefault(path.resolve(), path)
    if len(found) != 1:
        held = ", ".join(path.name for path in found.values()) or "none"
        raise PeerError(f"{folder}: expected one library that exports malloc, found {held}")
    return next(iter(found.values()))


def discover(extra: Sequence[str] = (), *, only: Sequence[str] = ()) -> list[Peer]:
    """Every allocator of this machine, then those of `extra` (`NAME=path.so`, which replaces an equal name).

    With `only`, it returns just those, in that order. An entry may be a name, a family name (`jemalloc`) or
    `NAME=path.so`. Raises PeerError for a missing name and for a library that it cannot use.
    """
    table: dict[str, Peer] = {}
    for peer in [_glibc(), *_freestone(), *_packaged(), *_scudo(), *_set(_installed()), *_controls()]:
        table.setdefault(peer.name, peer)
    for spec in extra:
        given = from_spec(spec)
        table[given.name] = given
    if not only:
        return list(table.values())
    chosen = {peer.name: peer for peer in (_resolve(name, table) for name in only)}
    return list(chosen.values())


def find(name_or_spec: str) -> Peer:
    """One allocator by name, family name or `NAME=path.so`. Raises PeerError if there is none."""
    if "=" in name_or_spec:
        return from_spec(name_or_spec)
    return discover(only=[name_or_spec])[0]


def _resolve(name: str, table: dict[str, Peer]) -> Peer:
    if "=" in name:
        return from_spec(name)
    for candidate in (name, *ALIASES.get(name, ())):
        if candidate in table:
            return table[candidate]
    known = [n for n, peer in table.items() if peer.kind != "control"]
    near = difflib.get_close_matches(name.lower(), [*known, *ALIASES, *CONTROLS], 1, 0.5)
    meant = f"did you mean {near[0]!r}? " if near and near[0] != name else ""
    hint = "; `freestone peers install` adds more" if name not in CONTROLS else ""
    raise PeerError(f"no allocator is named {name!r}; {meant}expected NAME=path.so or one of {', '.join(known)}{hint}")


def preload_environment(peer: Peer) -> dict[str, str]:
    """The variables that run a program under `peer`. Lay them over the program's own environment."""
    env = dict(peer.env)
    if peer.path is not None:
        if paths.SPLITS_PRELOAD.search(peer.path):
            raise UserError(f"'{peer.path}': {proof.UNREACHABLE}")
        env["LD_PRELOAD"] = peer.path
    return env
