"""The suites of `freestone bench`: which workload runs, with which parameters, and what each one shows.

Sized for 2 processors and 24 GiB. `seconds` is about what one process takes there under glibc. `memory_mib` is the most
that it may hold at its peak under any allocator. `freestone-workload NAME --help` lists a run's parameters. A parameter
with a list ("16..1M") gets a fresh process per value.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from freestone_lab.core.errors import UserError

# How often programs ask for each size: the weights of the `micro` workload.
WEIGHTS: dict[int, float] = {
    16: 0.20, 32: 0.15, 64: 0.15, 128: 0.12, 256: 0.10, 512: 0.08, 1024: 0.05, 4096: 0.05, 16384: 0.04, 65536: 0.03,
    262144: 0.03,
}  # fmt: skip

PROGRAM = "freestone-workload"
MOST_NULL_GIB = 12.0

# All requests of a run's largest process added up, where they are gigabytes; a test counts them again.
NULL_GIB: dict[str, float] = {
    **{f"throughput/threads={t}": 125.0 * t for t in (1, 8)},
    **{f"latency/published/threads={t}": 391.0 for t in (1, 8)},
    **{f"burst/threads={t}": 3.9 for t in (1, 8)},
    "overhead/published": 769.0,
    "larson/medium": 10.3,
    "larson/mixed": 9.2,
    "larson/large": 13.8,
    "micro/published": 158.0,
    "realloc/append": 38.4,
    "pair/calls": 12.5,
    "pair/new": 122.0,
    "reuse/small": 50.0,  # about: threads work until the main one is done
    "reuse/large": 705.0,
    "reuse/huge": 485.0,
}


@dataclass(frozen=True)
class WorkloadRun:
    """A row of a suite: a workload with its parameters, what it shows, and what it needs."""

    id: str
    workload: str
    seconds: float
    memory_mib: int
    shows: str  # what it answers, or the table or plot that it reproduces
    params: dict[str, str | int] = field(default_factory=dict)
    null_gib: float = 0.0  # what an allocator that never frees holds in the end; given where it is much

    @property
    def null_fits(self) -> bool:
        """Whether an allocator that never frees can finish on the machine that the suites are sized for."""
        return self.null_gib <= MOST_NULL_GIB

    def arguments(self) -> list[str]:
        """What follows the program's name on the command line."""
        return [self.workload, *(f"--{name}={value}" for name, value in self.params.items())]


def _run(id_: str, seconds: float, memory_mib: int, shows: str, **params: str | int) -> WorkloadRun:
    """A run whose workload is the first part of its id; `idle_ms=0` is passed as `--idle-ms=0`."""
    named = {name.replace("_", "-"): value for name, value in params.items()}
    return WorkloadRun(id_, id_.split("/")[0], seconds, memory_mib, shows, named, NULL_GIB.get(id_, 0.0))


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

_SIZES = "2^1..2^22"

# What the articles measured, with their parameters: one configuration for each of their statements, threads at the
# ends of their range.
_ENDS = (1, 8)
PUBLISHED: tuple[WorkloadRun, ...] = (
    # Article 0: throughput, latency, overhead and resident memory of five allocators.
    *(_run(f"throughput/threads={t}", 0.5 if t == 1 else 0.9, 400, "article 0: items per second by size",
           size="2^1..2^25", threads=t) for t in _ENDS),
    *(_run(f"latency/published/threads={t}", 1.0, 64, "article 0: latency by size, one block live, clock cost removed",
           size=_SIZES, live=1, samples=100000, touch="none", threads=t) for t in _ENDS),
    *(_run(f"latency/live/threads={t}", 0.27, 64, "article 0: tail of malloc and free with 1000 live blocks",
           law="mixed", threads=t, idle_ms=10) for t in _ENDS),
    _run("overhead/published", 1.3, 1100, "article 0: usable and resident bytes per request", grid="published"),
    _run("rss/threads", 0.65, 64, "article 0: resident memory by threads",
         threads="1,2,4,8", blocks=1000, steps=200000, idle=100),
    _run("rss/sizes", 1.5, 1600, "article 0: resident memory by size",
         threads=4, blocks=100, size="1K..1M", steps=400, idle=50, sample_ms=2),
    _run("rss/timeline", 1.0, 128, "article 0: resident memory over time, after stop, after idle",
         threads=4, blocks=10000, steps=300000, idle=600),
    # Article 1: random lifetimes.
    *(_run(f"lifetimes/program/threads={t}", 0.25, 300,
           "article 1: cost of a pair and memory overhead, the law that was run",
           slots="2^20", steps=2000000 // t, threads=t, idle_ms=10) for t in _ENDS),
    _run("lifetimes/article", 0.2, 400, "article 1: the same with the law that was described",
         law="article", slots="2^14", steps=300000, idle_ms=10),
    # Article 2: alloc-test with one thread, and the mixtures of its project. Espresso is among the programs of `apps`.
    _run("lifetimes/alloc-test", 0.4, 40, "article 2: alloc-test, one thread",
         exponent=10, slots="2^18", steps=2000000),
    *(_run(f"larson/{name}", 0.3, 64, f"article 2: random mixed, 400 live blocks of {low} to {high} bytes",
           threads=1, generations=1, steps=steps, blocks=400, low=low, high=high)
      for name, low, high, steps in (("medium", 4096, 32768, 600000), ("mixed", 16, 32768, 600000))),
    _run("cross/remote-50", 0.3, 200, "article 2: half of the blocks freed by another thread",
         threads=4, remote=50, blocks=1000000, low=16, high=2048),
    # Article 3: micro table, composite, threads, larson-like and cfrac-like; its programs are in `apps`.
    _run("micro/published", 0.7, 40, "article 3: latency table, calloc, realloc, threads, weighted composite",
         rounds=400000),
    _run("larson/like", 0.3, 16, "article 3: larson-like, 1000 slots of 8 to 512 bytes",
         threads=1, generations=4, steps=1000000),
    _run("cfrac-like/published", 0.45, 16, "article 3: cfrac-like, half of its 5,000,000 calls", steps=2500000),
    # Article 4: ring and batches. A tenth of the published slots: all 100,000 need 15 GiB with 128 threads.
    _run("ring/published", 1.6, 2000, "article 4: thread scaling as it was run",
         form="published", threads="1..128", slots=10000, steps=25000),
    _run("ring/corrected", 1.2, 1500, "article 4: thread scaling with frees",
         threads="1..128", steps=6000, sample_every=1),
    _run("batch/mixed", 0.3, 16, "article 4: batches of 128 mixed blocks"),
)  # fmt: skip

THREADS: tuple[WorkloadRun, ...] = (
    *(_run(f"burst/threads={t}", 0.4, 2200, "a burst of 1000 blocks in all, by size", threads=t, blocks=1000 // t)
      for t in _ENDS),
    _run("pair/threads", 0.2, 16, "pairs of 64 bytes by threads", size=64, threads="1..16", rounds=2000000),
    _run("ring/tail", 0.4, 100, "tail with 8 threads, every second call timed", threads=8, steps=80000, sample_every=2),
    _run("larson/threads", 0.9, 200, "blocks that cross to new threads", threads="1..16", steps=60000),
    _run("larson/large", 0.4, 400, "the same with 4 to 32 KiB", threads=4, low=4096, high=32768, steps=10000),
    *(_run(f"cross/{pattern}/threads={t}", 0.15, 200, f"blocks freed elsewhere: {pattern}",
           pattern=pattern, threads=t, blocks=1500000, idle_ms=10)
      for pattern in ("share", "batch", "fan-in", "pipeline") for t in (2, 8)),
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


# What the addresses of freed and fresh blocks tell an attacker: `bench hardening`. Its figures judge no time.
HARDENING: tuple[WorkloadRun, ...] = (
    _run("reuse/small", 4.0, 200, "when addresses of small blocks return", cap=16384, rounds=10, rest=300),
    _run("reuse/large", 0.1, 100, "when addresses of large blocks return", part="large", cap=8192),
    _run("reuse/huge", 0.1, 64, "when addresses of mappings return", part="huge", cap=512),
    _run("reuse/layout", 0.1, 160, "guesses at the next block, and blocks over others' addresses", part="layout"),
    _run("reuse/distances", 0.1, 64, "distances between addresses over starts", part="distances", rounds=16),
)

MOST_THREADS = 1024  # that a workload takes


def thread_counts(processors: int) -> list[int]:
    """1, 2, 4 ... and the number of processors and twice it; at most what a workload takes."""
    top = min(2 * processors, MOST_THREADS)
    powers = [1 << k for k in range(top.bit_length())]
    return sorted({t for t in (*powers, processors, top) if t <= top})


def _rows(threads: int, processors: int) -> list[WorkloadRun]:
    rounds = max(1.0, threads / processors)  # how often the processors have to go through the threads' work

    def at(
        workload: str, seconds: float, memory_mib: float, null_mib: float, shows: str, **params: str | int
    ) -> WorkloadRun:
        """`seconds`, and the MiB held at once and in all, are those of one thread."""
        name = f"{workload}/scaling/threads={threads}"
        made = _run(name, seconds * rounds, 8 + round(memory_mib * threads), shows, threads=threads, **params)
        return replace(made, null_gib=null_mib * threads / 1024)

    alone = [
        at("pair", 0.1, 0.1, 64, "pairs of 64 B by threads", size=64, rounds=1000000 * threads, idle_ms=0),
        at("burst", 0.2, 2, 400, "1000 blocks of 1 KiB in each thread", size="1K", rounds=100, idle_ms=0),
        at("larson", 0.2, 1, 60, "blocks that go on to new threads", generations=10, steps=20000, idle_ms=0),
        at("grow-shrink", 0.2, 12, 90, "heaps that grow and shrink by 8 MiB", mib=8 * threads, cycles=10, idle_ms=0),
    ]
    if threads == 1:
        return alone
    return [
        *alone,
        at("cross", 0.1, 2, 120, "blocks that the next thread frees", blocks=200000 * threads, idle_ms=0),
        at("server", 0.2, 16, 60, "requests, 5 % freed by the next thread", requests=25000 * threads, idle_ms=0),
    ]


def scaling(processors: int) -> tuple[WorkloadRun, ...]:
    """What threads do to throughput and memory, from one to twice as many as this machine has processors.

    Each thread does the same work at every count, and each count is a process of its own. If the threads do not hinder
    one another, throughput grows up to the number of processors and then stays, and memory per thread throughout.
    """
    return tuple(run for threads in thread_counts(processors) for run in _rows(threads, processors))


# The real programs of two suites; how each is run and which are installed is the business of the programs' own module.
# The suite `apps` has all of that module's.
PUBLISHED_APPS = ("espresso", "python-documents", "redis", "nginx", "sqlite3", "git")  # of articles 2 and 3
APPS: tuple[str, ...] = (
    *("espresso", "python-documents", "python-objects", "redis", "nginx", "sqlite3", "git", "lua", "jq", "perl"),
    *("cc1plus", "z3", "ghostscript", "xsltproc", "ruby", "node", "php", "xmllint", "gawk", "emacs"),
)


def _union(*groups: Iterable[WorkloadRun]) -> tuple[WorkloadRun, ...]:
    """All runs in order, each id once."""
    return tuple({run.id: run for group in groups for run in group}.values())


# `apps` holds no workload program: real programs are its members.
SUITES: dict[str, tuple[WorkloadRun, ...]] = {
    "quick": QUICK,
    "published": PUBLISHED,
    "threads": THREADS,
    "memory": MEMORY,
    "scaling": scaling(len(os.sched_getaffinity(0))),  # those that this process may use
    "apps": (),
    "hardening": HARDENING,
    "full": _union(PUBLISHED, THREADS, MEMORY),
}
# (): every one
WITH_APPS: dict[str, tuple[str, ...]] = {"apps": (), "published": PUBLISHED_APPS, "full": APPS}


def suite(name: str) -> tuple[WorkloadRun, ...]:
    """The runs of a suite, those of one workload (every run of `full` and `quick` that uses it), or one run."""
    if name in SUITES:
        return SUITES[name]
    every = _union(SUITES["full"], QUICK, HARDENING)
    found = tuple(run for run in every if name in (run.id, run.workload))
    found = found or tuple(run for run in SUITES["scaling"] if name == run.id)
    if not found:
        known = sorted({run.workload for run in every})
        raise UserError(f"'{name}' is no suite ({', '.join(SUITES)}) and no workload ({', '.join(known)})")
    return found
