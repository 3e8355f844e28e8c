"""What a sitting needs first: the library and packages, the allocators to compare, and the seed."""

import contextlib
import secrets
import sys
from collections.abc import Callable, Sequence

from freestone_lab.core import builds, paths, units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.peers import discover, packages, variants

# The rivals of a plain `compare`: one of each family, the newest that is present.
FAMILIES = ("freestone", "jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")
BASELINE = discover.LIBC_PEER
Say = Callable[[str], None]


LIBRARY = "libfreestone.so"
BUILD_TOOLS = ("gcc", "g++", "cmake", "ninja")
BUILD_WORDS = "about a minute and 200 MiB in build/"


def get_ready(packages_wanted: Sequence[str], limit_s: float | None, install: bool, say: Say, *asked: str) -> None:
    """Says how long a sitting takes, what it installs and builds and how much disk that needs; then does it.

    Without the packages there are fewer allocators and programs. Raises PeerError before all that if one of the names
    `asked` is of no allocator that is here or comes with it.
    """
    coming = (p.name for p in (*discover.PACKAGED, *discover.SETTINGS))
    known = {"all", *FAMILIES, "freestone-hardened", *discover.ALIASES, *discover.CONTROLS, *coming}
    known |= {spec.partition("=")[0] for spec in _specs(asked)}
    for name in _split(asked):
        if name not in known:
            discover.find(name)
    if limit_s is not None:
        say(f"measuring takes at most {units.words(limit_s)}")
    if install:
        built = (paths.build_dir() / LIBRARY).exists()
        ensure_packages([*packages_wanted, *(() if built else packages.missing_programs(BUILD_TOOLS))], say)
    elif packages_wanted:
        say(f"not here and left out: {_sized(packages_wanted)}")
    _ensure_library(say)


def _sized(wanted: Sequence[str]) -> str:
    mib = packages.installed_mib(wanted)
    size = f" ({f'about {mib:.0f}' if mib >= 1 else 'less than 1'} MiB)" if mib else ""
    return f"{' '.join(wanted)}{size}"


def _ensure_library(say: Say) -> None:
    """Builds libfreestone if this repository has none yet. If that fails, it says so and goes on without it."""
    try:
        if not (paths.build_dir() / LIBRARY).exists():
            say(f"building libfreestone, once: {BUILD_WORDS}")
        builds.built(LIBRARY)
    except UserError as error:
        say(f"libfreestone is left out: {error}")


def ensure_packages(wanted: Sequence[str], say: Say) -> None:
    """Installs packages if it may, and says so first. Otherwise it names the line to type."""
    if not wanted:
        return
    if packages.privilege() is None:
        say(f"not here and left out: {_sized(wanted)}; type: {packages.command_line(wanted)}")
        return
    say(f"installing {_sized(wanted)}")
    left = packages.install(list(wanted))
    if left:
        say(f"not installed, and left out: {' '.join(left)}; type: {packages.command_line(left)}")


def choose_peers(with_names: Sequence[str], only: Sequence[str], options: Sequence[str] = ()) -> list[Peer]:
    """The baseline, then `only`, or else the default families followed by `with_names`. `all` stands for every peer.

    Names may also stand in one word with commas between them; the path of `NAME=path.so` is left as it is. Each value
    of `options` makes a variant of its allocator.
    """
    return variants.with_options(_chosen(with_names, only), options)


def _chosen(with_names: Sequence[str], only: Sequence[str]) -> list[Peer]:
    with_names, only = _split(with_names), _split(only)
    specs = _specs([*with_names, *only])  # what one option describes, the other may name

    def named(*names: str) -> list[Peer]:
        return discover.discover(specs, only=names) if names else []

    if "all" in with_names or "all" in only:
        everyone = [p for p in discover.discover() if p.kind != "control"]
        return _unique([*everyone, *named(*(n for n in (*with_names, *only) if n != "all"))])
    baseline = discover.find(BASELINE)
    if only:
        return _unique([baseline, *named(*only, *with_names)])
    defaults: list[Peer] = []
    for family in FAMILIES:
        with contextlib.suppress(discover.PeerError):
            defaults += discover.discover(only=[family])
    also = [s.name for s in discover.SETTINGS if any(p.name == s.of != s.name for p in defaults)]
    defaults += discover.discover(only=also) if also else []
    return _unique([baseline, *defaults, *named(*with_names)])


def _specs(names: Sequence[str]) -> list[str]:
    return [name for name in names if "=" in name]


def _split(names: Sequence[str]) -> list[str]:
    parts = {name: [name] if "=" in name else name.split(",") for name in names}
    for name, own in parts.items():
        if not all(own):
            raise UserError(f"'{name}': expected names of allocators or NAME=path.so, with commas between them")
    return [part for own in parts.values() for part in own]


def _unique(found: Sequence[Peer]) -> list[Peer]:
    return list({p.name: p for p in found}.values())


def fresh_seed() -> int:
    return secrets.randbelow(1 << 31)


def to_stderr(text: str) -> None:
    """The usual `say`: one line to the user, beside the data on stdout."""
    print(f"freestone: {text}", file=sys.stderr)
