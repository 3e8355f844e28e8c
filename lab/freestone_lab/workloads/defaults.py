"""What `freestone compare` runs when it is given no command: five jobs in which the allocator matters.

A server's threads that hand blocks on, a database, an interpreter, a compiler, and a long-running heap whose sizes
drift. Each takes 50 to 90 ms, on one processor where it has one thread: some fifty rounds of all of them under six
allocators fit into the budget. With that a ratio is known within 3 % where pairs of runs differ by up to 3.4 %
(`analysis/sequential.py`); fifteen runs of four times the length would need pairs that differ by 1.6 %, and what
differs from process to process, such as the layout of pages in caches, does not get less in longer runs.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.engine.plan import Task
from freestone_lab.workloads import tasks as workloads

PROGRAMS = ("sqlite3", "g++")
INPUTS = Path(__file__).parent / "inputs"
JUDGED = ("cpu", "wall", "rss")  # as for every other program
SERVER = "server:threads=4,requests=60000,entries=1000"
HEAP = "drift:live-mib=6,phases=4"


def _sqlite() -> Task | None:
    program = shutil.which("sqlite3")
    if program is None:
        return None
    script = INPUTS / "orders.sql"
    words = (program, "-batch", ":memory:")
    return Task("sqlite3", "sqlite3 on an order book in memory", words, stdin=script, seconds=0.06)


def python() -> Task:
    program = os.path.realpath(sys.executable)
    argv = (program, "-S", "-s", str(INPUTS / "parse.py"))
    caveat = "run with PYTHONMALLOC=malloc, so that every Python object comes from the allocator"
    return Task(
        "python", "python parsing its own library", argv, env={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"},
        caveats=(caveat,), seconds=0.06,
    )  # fmt: skip


def _compiler(scratch: Path) -> Task | None:
    """The compiler proper, one process, as the driver would start it."""
    driver = shutil.which("g++")
    if driver is None:
        return None
    source, output = INPUTS / "machine.cc", scratch / "compiled.s"
    words = [driver, "-###", "-std=c++17", "-O1", "-S", str(source), "-o", str(output)]
    said = subprocess.run(words, capture_output=True, text=True).stderr
    line = next((line for line in said.splitlines() if line.split()[:1] and line.split()[0].endswith("cc1plus")), None)
    if line is None:
        return None
    return Task("g++", f"g++ compiling {source.name}", tuple(shlex.split(line)), output_files=(output,), seconds=0.09)


def _workload(name: str, what: str, spec: str, seconds: float) -> Task | None:
    """A job of the workload program; None where that is not built."""
    try:
        found = workloads.custom_task(workloads.workload_program(), spec)
    except UserError:
        return None
    if found is None:
        return None
    return replace(found, id=name, workload=name, params={**found.params, "job": what}, seconds=seconds, judged=JUDGED)


def tasks(scratch: Path, quick: bool = False, say: Callable[[str], None] = lambda _: None) -> list[Task]:
    """The jobs that this machine can do, or just the interpreter's; outputs go below `scratch`."""
    if quick:
        return [python()]
    jobs = {
        "server": _workload("server", "four threads that serve requests", SERVER, 0.07),
        "heap": _workload("heap", "a long-running heap whose sizes drift", HEAP, 0.08),
        "python": python(),
        "sqlite3": _sqlite(),
        "g++": _compiler(scratch),
    }
    absent = [name for name, job in jobs.items() if job is None]
    if absent:
        say(f"left out, for this machine lacks what they run: {', '.join(absent)}")
    return [job for job in jobs.values() if job is not None]
