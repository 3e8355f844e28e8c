"""What a run finds around it: folders, free memory, and the commands of the user before and after it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from freestone_lab.core.errors import UserError


def open_folder(scratch: Path) -> Path:
    """A folder in which a server that runs as another user can leave its account."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    scratch.chmod(0o711)
    folder.chmod(0o777)
    return folder


def names_in(folder: Path) -> set[str]:
    """The names in a folder. Empty if it cannot be read."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError:
        return set()


def available_kib() -> int:
    """MemAvailable of this machine."""
    match = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(match[1]) if match else 1 << 20


def shell(command: str | None, option: str, cwd: Path) -> None:
    """Runs the user's command around a run, without the allocator under test and outside the measured time."""
    if command is None:
        return
    done = subprocess.run(command, shell=True, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"{option} '{command}' ended with status {done.returncode}" + (f": {said[-1]}" if said else ""))
