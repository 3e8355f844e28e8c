"""The suites of `freestone bench`: which workload runs, with which parameters, and what each one shows.

Sized for 2 processors and 24 GiB. `seconds` is about what one process takes there under glibc. `memory_mib` is the most
that it may hold at its peak under any allocator. `freestone-workload NAME --help` lists a run's parameters. A parameter
with a list ("16..1M") gets a fresh process per value.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.workloads.published import PUBLISHED
from freestone_lab.workloads.rows import WorkloadRun
from freestone_lab.workloads.rows import row as _run
from freestone_lab.workloads.scaling import of_this_machine

# How often programs ask for each size: the weights of the `micro` workload.
WEIGHTS: dict[int, float] = {
    16: 0.20, 32: 0.15, 64: 0.15, 128: 0.12, 256: 0.10, 512: 0.08, 1024: 0.05, 4096: 0.05, 16384: 0.04, 65536: 0.03,
    262144: 0.03,
}  # fmt: skip

PROGRAM = "freestone-workload"

QUICK: tuple[WorkloadRun, ...] = (
    _run("pair/quick", 0.15, 8, "malloc/free pair by size", size="16,64,1024,16K", rounds=250000, idle_ms=0),
    _run("burst/quick", 0.3, 100, "a burst of 1000 blocks by size", size="64,4K,64K", rounds=60, idle_ms=0),
    _run("latency/quick", 0.45, 16, "tail of malloc and free", law="mixed", live=1000, idle_ms=0),
    _run("lifetimes/quick", 0.2, 40, "random lifetimes", slots="2^16", steps=1000000, idle_ms=0),
    _run("ring/quick", 0.1, 40, "two threads, three bands of sizes", threads=2, steps=60000, idle_ms=0),
    _run("larson/quick", 0.1, 16, "blocks handed to new threads", threads=2, generations=10, idle_ms=0),
    _run("cross/quick", 0.15, 64, "blocks freed by the other thread", threads=2, blocks=500000, idle_ms=0),
    _run("cfrac-like/quick", 0.15, 16, "small mixed calls", steps=500000, idle_ms=0),
    _run("realloc/quick", 0.1, 32, "vectors that grow", rounds=20, idle_ms=0),
    _run("overhead/quick", 0.45, 32, "memory per request", budget_mib=4, rss_top="64K", top="1M", idle_ms=0),
    _run("phases/quick", 1.0, 80, "memory kept after a peak", peak_mib=24, idle=150, idle_ms=0),
    _run("startup/quick", 0.1, 16, "an empty program", runs=30, idle_ms=0),
)

_TEAMS = (1, 2, 4, 8)

THREADS: tuple[WorkloadRun, ...] = (
    *(_run(f"burst/threads={t}", 0.4, 2200, "a burst of 1000 blocks in all, by size", threads=t, blocks=1000 // t)
      for t in _TEAMS),
    _run("pair/threads", 0.2, 16, "pairs of 64 bytes by threads", size=64, threads="1..16", rounds=2000000),
    _run("ring/tail", 0.4, 100, "tail with 8 threads, every second call timed", threads=8, steps=80000, sample_every=2),
    _run("larson/threads", 0.9, 200, "blocks that cross to new threads", threads="1..16", steps=60000),
    _run("larson/large", 0.4, 400, "the same with 4 to 32 KiB", threads=4, low=4096, high=32768, steps=10000),
    *(_run(f"cross/{pattern}/threads={t}", 0.15, 200, f"blocks freed elsewhere: {pattern}",
           pattern=pattern, threads=t, blocks=1500000, idle_ms=10)
      for pattern in ("share", "batch", "fan-in", "pipeline") for t in (2, 4, 8)),
    _run("churn/width-4", 0.2, 32, "threads that are born and end", threads=4),
    _run("churn/width-100", 0.3, 200, "a hundred threads at once", threads=100, waves=20),
    _run("false-sharing/active", 0.1, 16, "own blocks on shared lines", threads="1,2,4"),
    _run("false-sharing/passive", 0.1, 16, "blocks handed out by one thread", threads="1,2,4", form="passive"),
    _run("cfrac-like/threads", 0.35, 32, "small mixed calls by threads", threads="1,2,4,8", steps=200000),
    *(_run(f"server/threads={t}", 0.4, 120, "requests, short and long blocks, 5 % freed elsewhere", threads=t)
      for t in (4, 8)),
    _run("grow-shrink/threads=8", 0.4, 200, "8 heaps that grow and shrink", threads=8, cycles=20),
)  # fmt: skip

MEMORY: tuple[WorkloadRun, ...] = (
    next(run for run in PUBLISHED if run.id == "overhead/published"),
    _run("startup/empty", 0.1, 16, "time and memory of an empty program", runs=60, idle_ms=10),
    _run("phases/peak", 1.5, 500, "grow, shrink, idle, grow, free, idle", peak_mib=32, idle=300),
    _run("phases/larger-blocks", 1.4, 500, "the same with blocks to 64 KiB", peak_mib=48, exponent=16, idle=300),
    _run("fragmentation/long", 0.9, 300, "resident over live bytes while sizes change", live_mib=24, phases=16),
    _run("fragmentation/survivors", 0.8, 300, "the same with a third left in place",
         live_mib=24, phases=16, survivors=33),
    _run("aligned/small", 0.2, 32, "alignments of 16 to 4096 bytes"),
    _run("aligned/pages", 0.2, 600, "page-aligned blocks", low=4096, high=4096, top="64K", steps=50000),
    _run("aligned/large", 0.5, 600, "alignments up to 1 MiB", low="64K", high="1M", top="1M", live=50, steps=5000),
    _run("large/blocks", 0.5, 900, "blocks of 5 to 25 MiB"),
    _run("realloc/double", 0.4, 64, "vectors that double"),
    _run("realloc/append", 0.3, 64, "vectors that grow by a little", pattern="append", rounds=40),
    _run("realloc/large", 0.5, 600, "vectors of 64 MiB", top="64M", vectors=2, rounds=4),
    _run("rss/idle", 1.8, 128, "memory after stop and 1.5 idle seconds",
         threads=4, blocks=10000, steps=100000, idle=1500),
    _run("pair/calls", 0.8, 16, "calloc pairs by size", call="calloc", touch="ends", size="16..256K", rounds=50000),
    _run("pair/new", 0.4, 16, "operator new pairs by size", call="new", size="16..256K", rounds=500000),
    _run("calls/surface", 0.4, 16, "every call of the surface, each timed alone"),
    _run("grow-shrink/64-mib", 0.4, 160, "a heap that grows and shrinks by 64 MiB", cycles=20),
    _run("grow-shrink/burst", 0.2, 100, "2000 blocks of 9000 B, over and over", mib=17, cycles=99, low=9000, high=9000),
    _run("drift/server", 1.0, 160, "resident over live bytes while sizes drift and some blocks survive"),
    _run("idle-threads/100", 0.5, 160, "what 100 threads that sleep keep", threads=100),
    _run("idle-threads/400", 0.9, 800, "what 400 threads that sleep keep", threads=400),
)  # fmt: skip

# The real programs of two suites; how each is run and which are installed is the business of the programs' own module.
# The suite `apps` has all of that module's.
PUBLISHED_APPS = ("espresso", "python-documents", "redis", "nginx", "sqlite3", "git")  # of articles 2 and 3
APPS: tuple[str, ...] = (
    *("espresso", "python-documents", "python-objects", "redis", "nginx", "sqlite3", "git", "lua", "jq", "perl"),
    *("cc1plus", "z3", "ghostscript", "xsltproc"),
)

# What the hardened build costs in ordinary programs: `bench costs`.
COSTS: tuple[str, ...] = (
    *("python", "python-objects", "python-documents", "pandas", "r", "emacs", "ruby", "make", "git", "bash", "perl"),
    *("jq", "sqlite3", "lua", "gawk", "php", "node", "cc1plus", "ghostscript", "xsltproc", "openssl", "xmllint"),
)


def _union(*groups: Iterable[WorkloadRun]) -> tuple[WorkloadRun, ...]:
    """All runs in order, each id once."""
    return tuple({run.id: run for group in groups for run in group}.values())


# `apps` and `costs` hold no workload program: real programs are their members.
SUITES: dict[str, tuple[WorkloadRun, ...]] = {
    "quick": QUICK,
    "published": PUBLISHED,
    "threads": THREADS,
    "memory": MEMORY,
    "scaling": of_this_machine(),
    "apps": (),
    "costs": (),
    "full": _union(PUBLISHED, THREADS, MEMORY),
}
# (): every one
WITH_APPS: dict[str, tuple[str, ...]] = {"apps": (), "costs": COSTS, "published": PUBLISHED_APPS, "full": APPS}


def suite(name: str) -> tuple[WorkloadRun, ...]:
    """The runs of a suite, those of one workload (every run of `full` and `quick` that uses it), or one run."""
    if name in SUITES:
        return SUITES[name]
    found = tuple(run for run in _union(SUITES["full"], QUICK) if name in (run.id, run.workload))
    found = found or tuple(run for run in SUITES["scaling"] if name == run.id)
    if not found:
        known = sorted({run.workload for run in SUITES["full"]})
        raise UserError(f"'{name}' is no suite ({', '.join(SUITES)}) and no workload ({', '.join(known)})")
    return found


def program() -> Path:
    """The built workload program."""
    found = paths.build_dir() / PROGRAM
    if not found.exists():
        raise UserError(f"{found} is missing: './freestone build' makes it")
    return found
