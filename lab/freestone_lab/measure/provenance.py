"""What an experiment was made of: its command line, its program, and the files that it was given, with their hashes.

With this, two labs can tell whether they measured the same.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.host.libraries import owner
from freestone_lab.measure.samples import digest

MOST_BYTES = 256 << 20  # of a file that is hashed


def of(argv: Sequence[str], cwd: Path, inputs: Iterable[Path] = ()) -> dict[str, Any]:
    """Words of the command line that name a file are inputs too."""
    image = Path(os.path.realpath(shutil.which(argv[0], path=f"{cwd}:{os.environ.get('PATH', '')}") or argv[0]))
    given = dict.fromkeys([*inputs, *(cwd / word for word in argv[1:] if word and len(word) < 4096)])
    hashes = {str(path): found for path in given if (found := _hash(path))}
    return {
        "argv": list(argv),
        "program": {"path": str(image), "sha256": _hash(image) or "", "version": owner(image)},
        "inputs": hashes,
    }


def _hash(path: Path) -> str | None:
    try:
        return digest(path) if path.is_file() and path.stat().st_size <= MOST_BYTES else None
    except OSError:
        return None


@cache
def commit() -> str:
    """The commit of this repository, with `+` if tracked files differ from it; "" outside one."""
    try:
        words = ["git", "-C", str(paths.root()), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
        return subprocess.run(words, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, UserError, subprocess.TimeoutExpired):
        return ""


def differences(identity: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What makes two runs of an experiment another one, where both say what they were made of."""
    if not before or not after:
        return []
    said = []
    programs = [one["program"] for one in (before, after)]
    if programs[0]["sha256"] != programs[1]["sha256"]:
        shown = [p["version"] or p["sha256"][:12] for p in programs]
        said.append(f"{identity}: another program: {shown[0]} and {shown[1]}")
    ours, theirs = ({Path(path).name: found for path, found in one["inputs"].items()} for one in (before, after))
    other = sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
    return [*said, *([f"{identity}: other content of {', '.join(other)}"] if other else [])]
