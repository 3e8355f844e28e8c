"""Who serves malloc: the dynamic linker's own account of a run, for every process that the run starts.

A run with LD_DEBUG=bindings writes one file per process that names, for each symbol, the object that it was bound to.
/proc/PID/maps cannot show two things that this shows: a mapped library that the program's own malloc shadows, and an
allocator that the program brings along. It slows the program, so each peer does it once, outside the measured rounds.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from freestone_lab.core import paths
from freestone_lab.core.elf import Elf, ElfError
from freestone_lab.measure import native

if TYPE_CHECKING:
    from freestone_lab.core.result import Peer

SYMBOLS = (
    "malloc", "free", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc",
    "malloc_usable_size", "_Znwm", "_ZdlPv",
)  # fmt: skip
UNREACHABLE = "the dynamic linker cannot preload a path with blanks or colons"
_BINDING = re.compile(r"binding file (.+) \[\d+\] to (.+) \[\d+\]: normal symbol `([A-Za-z_]+)'")
_LIBC = re.compile(r"libc(\.so\.6|-2\.\d+\.so)$")


@dataclass
class Account:
    """For one run and all its processes: symbol -> the object it was bound to -> the objects that use that."""

    owners: dict[str, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    processes: int = 0

    def serving(self, symbol: str, besides: str = "") -> list[str]:
        """The objects that served `symbol` to anybody but the object `besides`, sorted."""
        found = self.owners.get(symbol, {})
        return sorted(provider for provider, users in found.items() if users - {besides})


def environment(folder: Path) -> dict[str, str]:
    """The variables that make the dynamic linker write its account into `folder`."""
    return {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(folder / "bindings")}


@lru_cache(maxsize=1024)
def defines(path: str, symbol: str) -> bool:
    """Whether the object itself defines `symbol`. An undefined one with a value is a jump stub, not a provider."""
    try:
        with Path(path).open("rb") as file:
            return any(s.name == symbol and s.defined for s in Elf(file).symbols(".dynsym"))
    except (OSError, ElfError):
        return False


@lru_cache(maxsize=1024)
def _real(name: str, cwd: str = "/") -> str:
    """The file behind a name in the account: the linker calls the program itself by its argv[0]."""
    if "/" not in name:
        return os.path.realpath(shutil.which(name) or name)
    return os.path.realpath(Path(cwd) / name)


def read_account(folder: Path, cwd: Path = Path("/")) -> Account:
    """Gathers the files that a run in `cwd` left under `environment(folder)`."""
    account = Account()
    for path in folder.glob("bindings.*"):
        account.processes += 1
        with path.open(errors="replace") as file:
            for line in file:
                match = _BINDING.search(line)
                if not match or match[3] not in SYMBOLS:
                    continue
                user, provider = _real(match[1], str(cwd)), _real(match[2], str(cwd))
                # An undefined symbol is a stub: the program's address of the function, which jumps on to the provider.
                if defines(provider, match[3]):
                    account.owners[match[3]][provider].add(user)
    return account


def is_libc(path: str) -> bool:
    return bool(_LIBC.search(path))


def libc_path() -> str | None:
    """The file of the C library that programs of this machine are linked with."""
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        path = line.partition("/")[2]
        if path and is_libc(f"/{path}"):
            return f"/{path}"
    return None


def judge(account: Account, peer: Peer) -> tuple[str | None, list[str]]:
    """Whether `peer` served the run: (why it did not, or None; remarks for its figures)."""
    if account.processes == 0:
        return "the dynamic linker did not run for it, so nothing can be preloaded (a static program?)", []
    if peer.path is None:
        foreign = [p for p in account.serving("malloc") if not is_libc(p)]
        if foreign:
            names = ", ".join(Path(p).name for p in foreign)
            return None, [f"the {peer.name} row is not glibc's malloc: the program brings {names}"]
        return None, []
    own = os.path.realpath(peer.path)
    if own not in account.serving("malloc"):
        found = ", ".join(Path(p).name for p in account.serving("malloc")) or "nobody"
        return f"malloc was bound to {found}, not to {Path(own).name}", []
    strays: dict[str, list[str]] = defaultdict(list)
    for symbol in SYMBOLS[:8]:
        for provider in account.serving(symbol, besides=own):
            if provider != own:
                strays[Path(provider).name].append(symbol)
    return None, [f"under {peer.name}, {name} also served {', '.join(symbols)}" for name, symbols in strays.items()]


@dataclass(frozen=True)
class Probe:
    """What the probe program saw under one peer. `failure` is one line, or None.

    `passed_on`: the library passes calls on to glibc's malloc. `complaints`: what it wrote to standard error.
    """

    owners: Mapping[str, str | None]
    failure: str | None
    passed_on: bool = False
    complaints: tuple[str, ...] = ()


def probe(peer: Peer, env: Mapping[str, str] | None = None, names: Sequence[str] = ()) -> Probe:
    """Runs a tiny program under `peer` and asks it where its allocation symbols live, and those of `names`."""
    return probe_library(peer.path, {**(env if env is not None else os.environ), **dict(peer.env)}, names)


def probe_library(library: str | None, env: Mapping[str, str], names: Sequence[str] = ()) -> Probe:
    """Probes a library, or the C library's own malloc."""
    if paths.SPLITS_PRELOAD.search(library or ""):
        return Probe({}, UNREACHABLE)
    full = dict(env)
    full.pop("LD_PRELOAD", None)
    if library:
        full["LD_PRELOAD"] = library
    try:
        command = [str(native.tool("probe")), *names]
        done = subprocess.run(command, env=full, capture_output=True, timeout=20)
    except subprocess.TimeoutExpired:
        return Probe({}, "hangs in a program that allocates 100 bytes")
    if done.returncode < 0:
        return Probe({}, f"a program that allocates 100 bytes dies of signal {-done.returncode}")
    try:
        raw = json.loads(done.stdout)
    except ValueError:
        return Probe({}, f"a program that allocates 100 bytes ends with status {done.returncode}")
    owners: dict[str, str | None] = {k: _real(v) if v else None for k, v in raw["owners"].items()}
    if not raw["works"]:
        return Probe(owners, "malloc(100) returns NULL or memory that does not keep its content")
    said = tuple(done.stderr.decode(errors="replace").strip().splitlines())
    if library and owners["malloc"] != os.path.realpath(library):
        return Probe(owners, f"malloc is served by {owners['malloc']}" + (f" ({said[0]})" if said else ""))
    return Probe(owners, None, raw["passed_on"], said)


def refusal(peer: Peer, env: Mapping[str, str]) -> str | None:
    """Why a library of Freestone would not be measured as it was asked to be: switched off, or options it refuses."""
    if not peer.path or peer.kind == "control" or not defines(peer.path, "freestone_is_active"):
        return None
    found = probe(peer, env)
    if found.passed_on:
        return f"{peer.name} is switched off here: it passes each call on to glibc's malloc (FREESTONE_DISABLE=1?)"
    refused = [line for line in found.complaints if line.startswith("freestone: FREESTONE_")]
    return f"{peer.name}: {refused[0].removeprefix('freestone: ')}" if refused else None
