"""Where things are: the repository, the build trees, the results."""

import contextlib
import os
import re
from pathlib import Path

from freestone_lab.core.errors import UserError

MARKER = "installed"
SPLITS_PRELOAD = re.compile(r"[\s:]")  # where the dynamic linker splits LD_PRELOAD


def preloadable(folder: Path) -> Path:
    """The folder; if its path would split LD_PRELOAD, a link to it in the user's cache, as the entry script makes it.

    The folder itself where the cache has such a path, too, or cannot be written.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '')}/.cache") / "freestone"
    link = cache / re.sub(rb"[^A-Za-z0-9]", b"_", os.fsencode(folder)).decode()
    if not SPLITS_PRELOAD.search(str(folder)) or SPLITS_PRELOAD.search(str(link)):
        return folder
    try:
        if os.path.realpath(link) != os.path.realpath(folder):
            cache.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(folder)
    except OSError:
        return folder
    return link


def _marker() -> Path | None:
    """The file that only an installation has. It names the version, and where the libraries lie from its own folder.

    It stands beside lab/, or in a wheel inside the package.
    """
    here = Path(__file__).resolve()
    found = (here.parents[3] / MARKER, here.parents[1] / "tree" / MARKER)
    return next((path for path in found if path.is_file()), None)


def installed() -> Path | None:
    """The folder of the libraries, if this is the installed command."""
    marker = _marker()
    if marker is None:
        return None
    return preloadable(Path(os.path.normpath(marker.parent / marker.read_text().splitlines()[0])))


def version() -> str:
    marker = _marker()
    if marker is not None:
        return marker.read_text().splitlines()[1]
    found = re.search(r"^set\(FREESTONE_VERSION ([^)]+)", (root() / "CMakeLists.txt").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def root() -> Path:
    """The repository: $FREESTONE_ROOT, or the nearest folder with CMakePresets.json above this file or the work dir.

    The installed command's root holds only the sources that it compiles on demand.
    """
    given = os.environ.get("FREESTONE_ROOT")
    if given:
        return preloadable(Path(given))
    marker = _marker()
    if marker is not None:
        return marker.parent
    for start in (Path(__file__).resolve(), Path.cwd()):
        for folder in start.parents if start.is_file() else (start, *start.parents):
            if (folder / "CMakePresets.json").exists() and (folder / "lab").is_dir():
                return preloadable(folder)
    raise UserError("the Freestone repository was not found; run inside it or set FREESTONE_ROOT to its path")


def build_dir(preset: str = "release") -> Path:
    return installed() or root() / "build" / preset


def cache_dir() -> Path:
    """Where the lab keeps what it compiles for itself: the build tree, or the user's cache outside a repository."""
    if installed() is None:
        with contextlib.suppress(UserError):
            return root() / "build" / "lab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "freestone"


def folder(path: Path, option: str) -> Path:
    """The folder, made if it is missing. UserError names the option, the path and the reason."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} '{path}': expected a folder; it cannot be made ({error.strerror})") from error
    return path.resolve()


def must_be_writable(path: Path, option: str) -> Path:
    """The path, after proof that a file can be written there. UserError names the option, the path and the reason."""
    there = path.exists()
    try:
        if path.is_fifo():  # opening it would wait for a reader
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise UserError(
            f"{option} '{path}': cannot be written ({error.strerror}); name a file in another folder"
        ) from error
    if not there:
        path.unlink(missing_ok=True)
    return path
