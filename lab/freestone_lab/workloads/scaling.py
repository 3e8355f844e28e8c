"""The suite `scaling`: what threads do to throughput and memory, from one to twice as many as there are processors.

Each thread does the same work at every count, and each count is a process of its own. If the threads do not hinder one
another, throughput grows up to the number of processors and then stays, and memory per thread stays throughout.
"""

from __future__ import annotations

import os
from dataclasses import replace

from freestone_lab.workloads.rows import WorkloadRun, row

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
        made = row(name, seconds * rounds, 8 + round(memory_mib * threads), shows, threads=threads, **params)
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
    """The rows for a machine of so many processors."""
    return tuple(run for threads in thread_counts(processors) for run in _rows(threads, processors))


def of_this_machine() -> tuple[WorkloadRun, ...]:
    """The rows for the processors that this process may use."""
    return scaling(len(os.sched_getaffinity(0)))
