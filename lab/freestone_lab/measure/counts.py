"""Counts that need no quiet machine: instructions by callgrind, system calls by strace, each in a pass of its own."""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from freestone_lab.core.result import FigureSpec

TIMEOUT_S = 600.0
SPECS: dict[str, FigureSpec] = {
    "instructions": FigureSpec("count", "lower", "instructions (callgrind)"),
    "syscalls": FigureSpec("count", "lower", "system calls (strace)"),
}


def _run(command: Sequence[str], env: Mapping[str, str], cwd: Path, stdin_path: Path | None) -> bool:
    # Not to /dev/null: grep, for one, ends at its first match there.
    with Path(stdin_path or os.devnull).open("rb") as stdin, tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                command, env=dict(env), cwd=cwd, stdin=stdin, stdout=output, stderr=output, timeout=TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode >= 0


def instructions(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: Path | None, scratch: Path
) -> int | None:
    """Instructions of the whole process tree by callgrind. None if it is missing or the program fails under it."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    command = ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={folder}/cg.%p"]
    if not _run([*command, *argv], env, cwd, stdin):
        return None
    found = [
        re.search(r"^(?:summary|totals): (\d+)", path.read_text(errors="replace"), re.MULTILINE)
        for path in folder.iterdir()
    ]
    return sum(int(match[1]) for match in found if match) or None


def syscalls(argv: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: Path | None, scratch: Path) -> int | None:
    """System calls of the whole process tree by strace. None if it is missing or the program fails under it."""
    table = scratch / "strace.txt"
    clean = {k: v for k, v in env.items() if k != "LD_PRELOAD"}
    preload = ["-E", f"LD_PRELOAD={env['LD_PRELOAD']}"] if "LD_PRELOAD" in env else []
    command = ["strace", "-f", "-c", "-U", "calls,name", "-o", str(table), *preload]
    if not _run([*command, *argv], clean, cwd, stdin):
        return None
    match = re.search(r"^\s*(\d+)\s+total$", table.read_text(), re.MULTILINE)
    return int(match[1]) if match else None
