"""The births of a trace in the order of time, each with its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freestone_lab.core.errors import UserError
from freestone_lab.trace import layout
from freestone_lab.trace.events import Array, Trace


@dataclass(frozen=True)
class Lives:
    """Every birth of a trace in the order of time: who, what, and when it ends, counted in births."""

    makers: Array
    sizes: Array
    aligns: Array
    ends: Array  # number of births before the end; -1 where there is none
    enders: Array
    times: Array


def lives(trace: Trace) -> Lives:
    """From the events of all threads."""
    numbers = sorted(trace.threads)
    starts, total = {}, 0
    parts = []
    for number in numbers:
        events = trace.threads[number]
        made = events.births >= 0
        starts[number] = total
        count = int(made.sum())
        total += count
        parts.append((np.full(count, number), events.sizes[made], events.aligns[made], events.times[made]))
    if not total:
        raise UserError(f"{trace.path}: there is no birth in it")
    makers, sizes, aligns, times = (np.concatenate([p[i] for p in parts]) for i in range(4))
    order = np.argsort(times, kind="stable")
    rank = np.empty(total, dtype=np.int64)
    rank[order] = np.arange(total)
    ends = np.full(total, -1, dtype=np.int64)
    enders = np.full(total, -1, dtype=np.int64)
    sorted_times = times[order]
    for number in numbers:
        events = trace.threads[number]
        dies = layout.IS_DEATH[events.kinds] & ~events.failed
        makers_of = [starts.get(int(t), -1) for t in events.ref_threads[dies]]
        places = np.array(makers_of, dtype=np.int64) + events.ref_births[dies]
        # After what its thread made before it, and after what others made in earlier steps.
        before = np.cumsum(events.births >= 0)[dies]
        own = np.flatnonzero(events.births >= 0)
        last = rank[starts[number] + np.clip(before - 1, 0, max(0, own.size - 1))] + 1 if own.size else np.zeros(0, int)
        by_time = np.searchsorted(sorted_times, events.times[dies], side="left")
        at = np.where(before > 0, np.maximum(last, by_time), by_time) if own.size else by_time
        ends[places] = np.maximum(at, rank[places] + 1)
        enders[places] = number
    return Lives(*(column[order] for column in (makers, sizes, aligns, ends, enders, times)))
