"""What `freestone compare` runs when it is given no command: five jobs in which the allocator matters.

A server's threads that hand blocks on, a database, an interpreter, a compiler, and a long-running heap whose sizes
drift. Each takes about a quarter of a second: some fifteen rounds of all of them under six allocators fit into the
budget, which is what it takes to know a ratio within 3 % where single runs differ by 1 %.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.engine.plan import Task
from freestone_lab.workloads import tasks as workloads

PROGRAMS = ("sqlite3", "g++")
INPUTS = Path(__file__).parent / "inputs"
_SOURCES = ("lab/workloads/src/params.cc", "lab/workloads/src/main.cc", "lab/workloads/src/report.cc")
JUDGED = ("cpu", "wall", "rss")  # as for every other program
SERVER = "server:threads=4,requests=400000"
HEAP = "drift:live-mib=16,phases=5"


def _sqlite() -> Task | None:
    program = shutil.which("sqlite3")
    if program is None:
        return None
    script = INPUTS / "orders.sql"
    return Task(
        "sqlite3", "sqlite3 on an order book in memory", (program, "-batch", ":memory:"), stdin=script, seconds=0.2
    )


def _python() -> Task:
    program = os.path.realpath(sys.executable)
    argv = (program, "-S", "-s", str(INPUTS / "parse.py"))
    caveat = "run with PYTHONMALLOC=malloc, so that every Python object comes from the allocator"
    return Task(
        "python", "python parsing its own library", argv, env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"},
        caveats=(caveat,), seconds=0.3,
    )  # fmt: skip


def _compiler(scratch: Path) -> Task | None:
    program = shutil.which("g++")
    source = next((paths.root() / s for s in _SOURCES if (paths.root() / s).exists()), None)
    if program is None or source is None:
        return None
    output = scratch / "compiled.o"
    argv = (program, "-std=c++20", "-O1", "-g", "-pipe", "-c", str(source), "-o", str(output))
    return Task("g++", f"g++ compiling {source.name}", argv, output_files=(output,), seconds=0.3)


def _workload(name: str, what: str, spec: str, seconds: float) -> Task | None:
    """A job of the workload program; None where that is not built."""
    try:
        found = workloads.custom_task(workloads.workload_program(), spec)
    except UserError:
        return None
    if found is None:
        return None
    return replace(found, id=name, params={**found.params, "job": what}, seconds=seconds, judged=JUDGED)


def tasks(scratch: Path, quick: bool = False, say: Callable[[str], None] = lambda _: None) -> list[Task]:
    """The jobs that this machine can do, or just the interpreter's; outputs go below `scratch`."""
    if quick:
        return [_python()]
    jobs = {
        "server": _workload("server", "four threads that serve requests", SERVER, 0.25),
        "heap": _workload("heap", "a long-running heap whose sizes drift", HEAP, 0.3),
        "python": _python(),
        "sqlite3": _sqlite(),
        "g++": _compiler(scratch),
    }
    absent = [name for name, job in jobs.items() if job is None]
    if absent:
        say(f"left out, for this machine lacks what they run: {', '.join(absent)}")
    return [job for job in jobs.values() if job is not None]
