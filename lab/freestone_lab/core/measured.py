"""Which code a result measured: hashes of the sources, so that a document can tell whether it is this tree's."""

import hashlib
from pathlib import Path
from typing import Any

from freestone_lab.core import paths

# What can be measured, and the files whose contents decide its figures.
SOURCES = {
    "allocator": ("allocator/src", "allocator/include", "allocator/CMakeLists.txt"),
    "workloads": ("lab/workloads/src",),
    "traces": ("trace/corpus", "trace/replayer"),
    "recorder": ("trace/recorder", "trace/writer"),
}


def code(root: Path) -> dict[str, str]:
    """A hash of each; leaves out what this installation does not have."""
    return {name: _hash(root, given) for name, given in SOURCES.items() if (root / given[0]).is_dir()}


def _hash(root: Path, given: tuple[str, ...]) -> str:
    found = hashlib.sha256()
    files = {path for name in given for path in ((root / name).rglob("*") if (root / name).is_dir() else [root / name])}
    for path in sorted(files):
        if path.is_file():
            found.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def stamp() -> dict[str, Any]:
    """What a stored result says of the code that it measured."""
    return {"version": paths.version(), "code": code(paths.root())}
