"""Files that are read whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_whole(path: Path, most: int = -1) -> bytes:
    """The bytes of a regular file, or its first `most`. OSError for anything else: a pipe or a device may never end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(most)
