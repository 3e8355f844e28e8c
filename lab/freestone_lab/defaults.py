"""What `freestone compare` runs when it is given no command: real programs of this machine on real input."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from freestone_lab import paths
from freestone_lab.method import Task

INPUTS = Path(__file__).parent / "inputs"
_SOURCES = ("lab/workloads/src/params.cc", "lab/workloads/src/report.cc", "lab/workloads/src/main.cc")


def _sqlite() -> Task | None:
    program = shutil.which("sqlite3")
    if program is None:
        return None
    script = INPUTS / "orders.sql"
    return Task(
        "sqlite3", "sqlite3 on an order book in memory", (program, "-batch", ":memory:"), stdin=script, seconds=0.24
    )


def _python() -> Task:
    program = os.path.realpath(sys.executable)
    argv = (program, "-S", "-s", str(INPUTS / "parse.py"))
    caveat = "run with PYTHONMALLOC=malloc, so that every Python object comes from the allocator"
    return Task(
        "python", "python parsing its own library", argv, env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"},
        caveats=(caveat,), seconds=0.25,
    )  # fmt: skip


def _compiler(scratch: Path) -> Task | None:
    program = shutil.which("g++")
    source = next((paths.root() / s for s in _SOURCES if (paths.root() / s).exists()), None)
    if program is None or source is None:
        return None
    output = scratch / "compiled.o"
    argv = (program, "-std=c++20", "-O0", "-pipe", "-c", str(source), "-o", str(output))
    return Task("g++", f"g++ compiling {source.name}", argv, output_files=(output,), seconds=0.4)


def tasks(scratch: Path, quick: bool = False) -> list[Task]:
    """The default programs that are on this machine, shortest first, or just that one; outputs go below `scratch`."""
    if quick:
        return [_python()]
    return [t for t in (_python(), _sqlite(), _compiler(scratch)) if t is not None]
