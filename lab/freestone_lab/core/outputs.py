"""Where files go. A place is tried before anything is measured; if it fails after all, the file goes elsewhere."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

Say = Callable[[str], None]


def fallbacks() -> list[Path]:
    """Folders for a file that cannot go to its place: the user's state, then /tmp."""
    state = os.environ.get("XDG_STATE_HOME")
    with contextlib.suppress(RuntimeError):  # no home folder
        state = state or str(Path.home() / ".local" / "state")
    return [*([Path(state) / "freestone"] if state else []), Path(tempfile.gettempdir())]


def new_name(kind: str, suffix: str = ".json") -> Path:
    """A new name in the current folder."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path.cwd() / f"freestone-{kind}-{stamp}{suffix}"


def problem(path: Path) -> str | None:
    """Why a file cannot be written there, or None. Makes the folder and leaves no file."""
    try:
        if path.is_dir():
            return "it is a folder"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not os.access(path, os.W_OK):
            return "it may not be written"
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".freestone-") as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def write_whole(path: Path, data: bytes | str) -> None:
    """Writes a file that appears whole or not at all. Writes into a device or a pipe and does not replace it.

    OSError names the path, on a full disk too. The name of a file may be no UTF-8: its bytes are written as they are.
    """
    packed = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(packed)
            return
        beside = path.resolve().with_name(path.name + ".partial")
        try:
            beside.write_bytes(packed)
            beside.replace(path.resolve())
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def usable(path: Path, say: Say) -> Path:
    """The path itself if a file can be written there. Otherwise a path that works, which it announces."""
    found = problem(path)
    if found is None:
        return path
    for folder in fallbacks():
        other = folder / path.name
        if problem(other) is None:
            say(f"{path}: {found}; it will be written to {other}")
            return other
    say(f"{path}: {found}, and no other place works: {', '.join(map(str, fallbacks()))}")
    return path


def write(path: Path, make: Callable[[Path], None], say: Say) -> Path | None:
    """Lets `make` write the file, and elsewhere if that fails (a full disk). None if it fails everywhere."""
    for place in (path, *(folder / path.name for folder in fallbacks())):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            make(place)
        except OSError as error:
            say(f"{place}: {error.strerror or error}")
            continue
        return place
    return None
