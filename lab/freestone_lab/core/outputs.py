"""Where files go. A place is tried before anything is measured; if it fails after all, the file goes elsewhere.

A file that Freestone made may be replaced by one of its kind; any other only with --force. No command writes
what it reads.
"""

import contextlib
import datetime
import fcntl
import os
import re
import shutil
import sys
import tempfile
import time
import weakref
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from freestone_lab.core.errors import UserError

Say = Callable[[str], None]
HEAD_BYTES = 64 << 10
YOUNG_S = 60
TRACE = re.compile(rb"FSTRACE\n")
# A page, JSON, every sample as a row, tables as Markdown.
OTHER = re.compile(rb'(?is)<!doctype html.*freestone|\{.*"freestone|experiment,peer,round,|### .*\n\| allocator \|')


def fallbacks() -> list[Path]:
    """Folders for a file that cannot go to its place: the user's state, then /tmp."""
    state = os.environ.get("XDG_STATE_HOME")
    with contextlib.suppress(RuntimeError):  # no home folder
        state = state or str(Path.home() / ".local" / "state")
    return [*([Path(state) / "freestone"] if state else []), Path(tempfile.gettempdir())]


class Scratch(tempfile.TemporaryDirectory[str]):
    """A folder for the time of a run, which holds its lock. Making one removes those of runs that were killed."""

    def __init__(self, kind: str) -> None:
        for path in Path(tempfile.gettempdir()).glob("freestone-*.scratch"):
            with contextlib.suppress(OSError):
                _remove_unlocked(path)
        super().__init__(prefix=f"freestone-{kind}-", suffix=".scratch")
        lock = os.open(self.name, os.O_RDONLY)
        weakref.finalize(self, os.close, lock)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_unlocked(path: Path) -> None:
    """Removes a folder of this user that no run holds, and that is not so young that its run is about to lock it."""
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        about = os.fstat(held)
        if about.st_uid == os.geteuid() and time.time() - about.st_mtime > YOUNG_S:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        os.close(held)


def new_name(kind: str, suffix: str = ".json") -> Path:
    """A new name in the current folder."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path.cwd() / f"freestone-{kind}-{stamp}{suffix}"


def ours(path: Path, force: bool, inputs: Iterable[Path], *, trace: bool = False) -> Path:
    """The path. UserError if it has a file that Freestone did not make, or of another kind, unless `force`.

    One of the `inputs`, under whatever name, is never replaced.
    """
    for read in inputs:
        with contextlib.suppress(OSError):
            if path.is_file() and path.samefile(read):
                raise UserError(f"'{path}' is the file '{read}' that is read: name another file to write")
    head = b"" if force or not path.is_file() else _head(path)
    if head and not (TRACE if trace else OTHER).match(head):
        kind = "trace" if trace else "page or result"
        raise UserError(
            f"'{path}' exists and is no {kind} of Freestone's: name another file, or replace it with --force"
        )
    return path


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj(31).decompress(head, HEAD_BYTES)
    return head


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


def must_write(path: Path, make: Callable[[Path], None]) -> Path:
    """Writes what a program may have run for hours for, elsewhere if its place fails, and says where it is."""
    place = write(path, make, lambda text: print(f"freestone: {text}", file=sys.stderr))
    if place is None:
        raise UserError(f"'{path}': it could not be written anywhere")
    print(f"written: {place}", file=sys.stderr)
    return place
