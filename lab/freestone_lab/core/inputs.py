"""Files that are read whole, or from their begin."""

import os
import stat
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.core.outputs import TRACE


def read_whole(path: Path, most: int = -1) -> bytes:
    """The bytes of a regular file, or its first `most`. UserError otherwise: a pipe or a device may never end."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(0, "not a regular file")
            return file.read(most)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def trace(path: Path, most: int = -1) -> bytes:
    """The bytes of a trace, or its first `most`. UserError if it cannot be read or begins like no trace."""
    data = read_whole(path, most)
    if not TRACE.match(data):
        raise UserError(f"{path}: at byte 0: no trace: expected the 64 bytes of a trace's header")
    return data
