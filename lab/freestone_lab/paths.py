"""Where things are: the repository, the build trees, the results."""

from __future__ import annotations

import os
from pathlib import Path

from freestone_lab.errors import UserError


def root() -> Path:
    """The repository: $FREESTONE_ROOT, or the nearest folder with CMakePresets.json above this file or the work dir."""
    given = os.environ.get("FREESTONE_ROOT")
    if given:
        return Path(given)
    for start in (Path(__file__).resolve(), Path.cwd()):
        for folder in start.parents if start.is_file() else (start, *start.parents):
            if (folder / "CMakePresets.json").exists() and (folder / "lab").is_dir():
                return folder
    raise UserError("the Freestone repository was not found; run inside it or set FREESTONE_ROOT to its path")


def build_dir(preset: str = "release") -> Path:
    return root() / "build" / preset


def results_dir() -> Path:
    """results/ of the repository; created on demand."""
    folder = root() / "results"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cache_dir() -> Path:
    """Where the lab keeps what it compiles for itself: the build tree, or the user's cache outside a repository."""
    try:
        return root() / "build" / "lab"
    except UserError:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return Path(base) / "freestone"
