"""Installs missing allocators: Debian's packages by apt, the newest releases from the sources of crates.

cargo only downloads. lab/peers/Cargo.toml names the crates and their versions. The peer's own build then builds it if
the crate carries one; otherwise lab/peers/CMakeLists.txt does, with that build's flags. A peer counts as installed once
a probe process has shown that it serves every name that it exports. A failure is reported with the reason, and the
others go on.
"""

import datetime
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.measure import proof
from freestone_lab.peers import discover
from freestone_lab.peers import packages as debian

JOBS = "2"
CONTROLS_NAME = "controls"
_BUILD_SECONDS = 1800.0


class InstallError(discover.PeerError):
    """Why a peer could not be installed, in one line."""


@dataclass(frozen=True)
class Source:
    """A downloaded crate: its folder and its version."""

    folder: Path
    version: str


@dataclass(frozen=True)
class Recipe:
    """How one peer comes from a crate: `build` returns the shared library, `upstream` the version of the allocator."""

    name: str
    crate: str
    build: Callable[[Source, Path], Path]
    upstream: Callable[[Source], str] = lambda source: source.version.partition("+")[0]
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of one name: "installed", "present", "failed" or "would install", and why or from what."""

    name: str
    status: str
    detail: str


def _run(command: Sequence[str | os.PathLike[str]], folder: Path, log: Path, env: dict[str, str] | None = None) -> None:
    """Runs one step of a build; its output goes to `log`. Raises InstallError with the first error line."""
    shown = [os.fspath(part) for part in command]
    if shutil.which(shown[0]) is None and not Path(shown[0]).is_file() and not (folder / shown[0]).is_file():
        raise InstallError(f"{shown[0]} is not installed; expected it for this build")
    with log.open("a") as out:
        out.write(f"$ {' '.join(shown)}\n")
        out.flush()
        try:
            done = subprocess.run(
                shown, cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env, timeout=_BUILD_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise InstallError(f"{Path(shown[0]).name} did not end within {_BUILD_SECONDS:g} s") from error
    if done.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()
        reason = next((line.strip() for line in reversed(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), "")
        failed = f"{Path(shown[0]).name} failed with exit code {done.returncode}"
        raise InstallError(f"{failed}: {reason or lines[-1]} (see {log})")


def _cmake(source: Path, build: Path, settings: Sequence[str], target: str) -> None:
    log = build.parent / "build.log"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    _run(["cmake", "-S", source, "-B", build, *generator, "-DCMAKE_BUILD_TYPE=Release", *settings], build.parent, log)
    _run(["cmake", "--build", build, "--target", target, "-j", JOBS], build.parent, log)


def _ours(name: str, *settings: str) -> Callable[[Source, Path], Path]:
    """Built by lab/peers/CMakeLists.txt."""

    def build(source: Source, work: Path) -> Path:
        _cmake(_peers_folder(), work / "out", [f"-DPEER={name}", f"-DCRATE={source.folder}", *settings], "peer")
        return work / "out" / f"lib{name}.so"

    return build


def _snmalloc(target: str) -> Callable[[Source, Path], Path]:
    """snmalloc's own CMake build of its preload libraries. It links the C++ runtime statically and exports it: hiding
    that copy would give operator new a new_handler of its own."""

    def build(source: Source, work: Path) -> Path:
        settings = ["-DSNMALLOC_BUILD_TESTING=OFF", "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--build-id"]
        _cmake(source.folder / "upstream", work / "out", settings, target)
        return work / "out" / f"lib{target}.so"

    return build


def _jemalloc(source: Source, work: Path) -> Path:
    """jemalloc's own configure, with the statistics that it has by default; the crate keeps configure apart."""
    tree = Path(shutil.copytree(source.folder / "jemalloc", work / "jemalloc"))
    shutil.copy(source.folder / "configure" / "configure", tree / "configure")
    log = work / "build.log"
    version = source.version.partition("+")[2]
    env = {**os.environ, "LDFLAGS": "-Wl,--build-id"}
    _run(["sh", "./configure", "--disable-doc", f"--with-version={version}"], tree, log, env)
    _run(["make", "-j", JOBS, "build_lib_shared"], tree, log, env)
    return tree / "lib" / "libjemalloc.so.2"


def _compatmalloc(source: Source, work: Path) -> Path:
    """Its own release build with all of its hardening, as published."""
    tree = Path(shutil.copytree(source.folder, work / "compatmalloc"))
    _run(["cargo", "build", "--release", "--locked", "--lib", "-j", JOBS], tree, work / "build.log")
    return tree / "target" / "release" / "libcompatmalloc.so"


def _isoalloc(source: Source, work: Path) -> Path:
    """Its own Makefile's release library with the C++ operators."""
    tree = Path(shutil.copytree(source.folder / "isoalloc", work / "isoalloc"))
    _run(["make", "cpp_library", "CC=gcc", "CXX=g++", "STRIP=true"], tree, work / "build.log")
    return tree / "build" / "libisoalloc.so"


def _mimalloc_version(line: str) -> Callable[[Source], str]:
    def upstream(source: Source) -> str:
        header = source.folder / "c_src" / "mimalloc" / line / "include" / "mimalloc.h"
        found = re.search(r"#define MI_MALLOC_VERSION (\d+)(\d\d)(\d\d)", header.read_text())
        return ".".join(str(int(part)) for part in found.groups()) if found else ""

    return upstream


def _rpmalloc_version(source: Source) -> str:
    return (source.folder / "rpmalloc" / "CHANGELOG").read_text().split(maxsplit=1)[0]


_SNAPSHOT = "upstream has no releases: the version is the crate's"
_V3, _V2 = _mimalloc_version("v3"), _mimalloc_version("v2")
RECIPES = (
    Recipe("mimalloc", "libmimalloc-sys", _ours("mimalloc"), _V3),
    Recipe("mimalloc-secure", "libmimalloc-sys", _ours("mimalloc-secure", "-DSECURE=ON"), _V3, "MI_SECURE=4"),
    Recipe("mimalloc-v2", "libmimalloc-sys", _ours("mimalloc-v2"), _V2),
    Recipe("jemalloc", "tikv-jemalloc-sys", _jemalloc, lambda source: re.split(r"[+-]", source.version)[1]),
    Recipe("snmalloc", "snmalloc-sys", _snmalloc("snmallocshim")),
    Recipe("snmalloc-checked", "snmalloc-sys", _snmalloc("snmallocshim-checks"), note="all client checks on"),
    Recipe("rpmalloc", "rpmalloc-sys", _ours("rpmalloc"), _rpmalloc_version),
    Recipe("tcmalloc", "libtcmalloc-sys", _ours("tcmalloc"), note=f"Google's, 8 KiB pages; {_SNAPSHOT}"),
    Recipe(
        "hardened-malloc", "hardened-malloc-sys", _ours("hardened-malloc"), note=f"default configuration; {_SNAPSHOT}"
    ),
    Recipe("hardened-malloc-light", "hardened-malloc-sys", _ours("hardened-malloc-light"), note="light configuration"),
    Recipe("isoalloc", "libisoalloc-sys", _isoalloc, note="its release settings; the version is the crate's"),
    Recipe("compatmalloc", "compatmalloc", _compatmalloc, note="all hardening on"),
)


def _peers_folder() -> Path:
    folder = paths.root() / "lab" / "peers"
    if not (folder / "Cargo.toml").is_file():
        raise InstallError(f"{folder}: holds no Cargo.toml; expected a Freestone checkout")
    return folder


def packages() -> dict[str, str]:
    """The name of each peer that a Debian package brings, and that package."""
    return {entry.name: entry.package for entry in discover.PACKAGED} | {"scudo": discover.SCUDO_PACKAGE}


def installable() -> list[str]:
    """Every name that `install` knows."""
    return [*packages(), *(recipe.name for recipe in RECIPES), CONTROLS_NAME]


def _fresh(name: str) -> Path:
    """An empty folder of this name in the cache."""
    folder = discover.cache_folder() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def download() -> dict[str, Source]:
    """Fetches the crates that lab/peers/Cargo.toml names, with cargo. Raises InstallError when that fails."""
    if shutil.which("cargo") is None:
        raise InstallError("cargo is not installed; expected it to download the peers' sources")
    work = _fresh(".sources")
    (work / "src").mkdir()
    for name in ("Cargo.toml", "src/lib.rs"):
        shutil.copy(_peers_folder() / name, work / name)
    _run(["cargo", "fetch"], work, work / "build.log")
    command = ["cargo", "metadata", "--format-version", "1", "--offline"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    if done.returncode != 0:
        raise InstallError(f"cargo metadata failed: {(done.stderr.splitlines() or ['no reason given'])[-1]}")
    wanted = {recipe.crate for recipe in RECIPES}
    return {
        package["name"]: Source(Path(package["manifest_path"]).parent, package["version"])
        for package in json.loads(done.stdout)["packages"]
        if package["name"] in wanted
    }


def _build(recipe: Recipe, source: Source | None) -> Outcome:
    if source is None:
        raise InstallError(f"cargo brought no crate {recipe.crate}")
    work = _fresh(f".build-{recipe.name}")
    library = recipe.build(source, work)
    origin = f"crate {recipe.crate} {source.version.partition('+')[0]}"
    final = discover.cache_folder() / recipe.name
    fresh = work / "final"
    fresh.mkdir()
    target = fresh / f"lib{recipe.name}.so"
    shutil.copy(library, target)
    _verify(discover.from_spec(f"{recipe.name}={target}"))
    description = {
        "name": recipe.name, "library": target.name, "version": recipe.upstream(source), "origin": origin,
        "note": recipe.note, "built": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
    }  # fmt: skip
    (fresh / "peer.json").write_text(json.dumps(description, indent=1) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    fresh.rename(final)
    shutil.rmtree(work, ignore_errors=True)
    return Outcome(recipe.name, "installed", f"{description['version']} from {origin}")


def not_served(peer: Peer) -> list[str]:
    """Names that a preloaded `peer` must serve and does not: those that it exports, and malloc's own four."""
    # __libc_* is glibc's private border: a program that asks for it by name and version gets glibc's.
    wanted = sorted(name for name in {*discover.CORE_NAMES, *peer.exports} if not name.startswith("__libc_"))
    owners = proof.probe(peer, names=wanted).owners
    return [name for name in wanted if owners.get(name) != os.path.realpath(peer.path or "")]


def _verify(peer: Peer) -> None:
    silent = not_served(peer)
    if silent:
        raise InstallError(f"preloaded, it does not serve {', '.join(silent[:5])}")


def _build_controls() -> Outcome:
    final = discover.cache_folder() / CONTROLS_NAME
    work = _fresh(f".build-{CONTROLS_NAME}")
    _cmake(_peers_folder() / "controls", work / "out", [], "all")
    final.mkdir(parents=True, exist_ok=True)
    for library in sorted((work / "out").glob("libcontrol-*.so")):
        library.rename(final / library.name)
    shutil.rmtree(work, ignore_errors=True)
    return Outcome(CONTROLS_NAME, "installed", f"{len(discover.CONTROLS)} control allocators")


def install(
    names: Sequence[str] = (),
    *,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Installs the peers of those names, all when empty; one outcome each. Raises PeerError for an unknown name."""
    known = installable()
    for name in names:
        if name not in known:
            raise InstallError(f"{name!r} cannot be installed; expected one of {', '.join(known)}")
    wanted = list(dict.fromkeys(names)) or known
    present = {peer.name for peer in discover.discover()}
    if present >= discover.CONTROLS.keys():
        present.add(CONTROLS_NAME)
    # A Debian package is apt's to renew: only what is built here can be forced.
    keep = {name for name in wanted if name in present and (not force or name in packages())}
    outcomes = [Outcome(name, "present", _origin(name)) for name in wanted if name in keep]
    todo = [name for name in wanted if name not in keep]
    if dry_run:
        return outcomes + [Outcome(name, "would install", _plan(name)) for name in todo]
    outcomes += _install_packages([name for name in todo if name in packages()], progress)
    outcomes += _install_built([recipe for recipe in RECIPES if recipe.name in todo], progress)
    if CONTROLS_NAME in todo:
        progress(CONTROLS_NAME)
        outcomes.append(_attempt(CONTROLS_NAME, _build_controls))
    return outcomes


def _origin(name: str) -> str:
    if name == CONTROLS_NAME:
        return "control allocators"
    peer = discover.find(name)
    return f"{peer.version} {peer.origin}".strip()


def _plan(name: str) -> str:
    if name in packages():
        return f"Debian package {packages()[name]}"
    crate = {recipe.name: f"crate {recipe.crate}" for recipe in RECIPES}.get(name, "lab/peers/controls")
    return f"built from {crate}"


def _install_packages(names: Sequence[str], progress: Callable[[str], None]) -> list[Outcome]:
    if not names:
        return []
    progress("Debian packages")
    wanted = {name: packages()[name] for name in names}
    left = debian.install(list(wanted.values()))
    return [
        Outcome(name, "failed", f"not installed; type: {debian.command_line([package])}")
        if package in left
        else Outcome(name, "installed", f"Debian package {package}")
        for name, package in wanted.items()
    ]


def _install_built(recipes: Sequence[Recipe], progress: Callable[[str], None]) -> list[Outcome]:
    if not recipes:
        return []
    progress("sources of the peers")
    try:
        sources = download()
    except InstallError as error:
        return [Outcome(recipe.name, "failed", str(error)) for recipe in recipes]
    outcomes = []
    for recipe in recipes:
        progress(recipe.name)
        outcomes.append(_attempt(recipe.name, partial(_build, recipe, sources.get(recipe.crate))))
    return outcomes


def _attempt(name: str, work: Callable[[], Outcome]) -> Outcome:
    try:
        return work()
    except (UserError, OSError) as error:
        return Outcome(name, "failed", str(error))
