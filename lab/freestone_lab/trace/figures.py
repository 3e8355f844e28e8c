"""What a trace comes to: calls by kind, live bytes over time, its peak. Everything is computed by whole arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freestone_lab.trace import layout
from freestone_lab.trace.events import Array, Trace


@dataclass(frozen=True)
class Changes:
    """Every birth and death of one process in the order of time, as a change of its live bytes and objects."""

    times: Array  # steps
    bytes: Array
    objects: Array

    @property
    def live_bytes(self) -> Array:
        return np.cumsum(self.bytes)

    @property
    def live_objects(self) -> Array:
        return np.cumsum(self.objects)


def born_sizes(trace: Trace) -> dict[int, Array]:
    """By thread: the size of each of its births, by number."""
    return {number: events.sizes[events.births >= 0] for number, events in trace.threads.items()}


def first_births(trace: Trace) -> dict[int, int]:
    """By thread: the number of its first birth in this trace; above 0 only when its start is missing."""
    found = {}
    for number, events in trace.threads.items():
        births = events.births[events.births >= 0]
        found[number] = int(births[0]) if births.size else 0
    return found


def ended_sizes(trace: Trace, thread: int) -> Array:
    """The size of what each event of a thread ends; 0 for events that end nothing or what is not in the trace."""
    events = trace.threads[thread]
    sizes, first = born_sizes(trace), first_births(trace)
    out = np.zeros(len(events), dtype=np.int64)
    dies = layout.IS_DEATH[events.kinds] & ~events.failed
    for maker in np.unique(events.ref_threads[dies]):
        if int(maker) not in sizes:
            continue
        chosen = dies & (events.ref_threads == maker)
        places = events.ref_births[chosen] - first[int(maker)]
        known = sizes[int(maker)]
        inside = (places >= 0) & (places < known.size)
        out[chosen] = np.where(inside, known[np.clip(places, 0, max(0, known.size - 1))] if known.size else 0, 0)
    return out


def changes(trace: Trace, process: int) -> Changes:
    """The live memory of a process; a forked one begins with nothing here."""
    times, sizes, objects = [], [], []
    for number, events in trace.threads.items():
        if events.process != process:
            continue
        born = np.where(events.births >= 0, events.sizes, 0)
        ends = ended_sizes(trace, number)
        dies = (layout.IS_DEATH[events.kinds] & ~events.failed).astype(np.int64)
        times.append(events.times)
        sizes.append(born - ends)
        objects.append((events.births >= 0).astype(np.int64) - dies)
    if not times:
        empty = np.zeros(0, dtype=np.int64)
        return Changes(empty, empty, empty)
    joined = np.concatenate(times)
    order = np.argsort(joined, kind="stable")
    return Changes(joined[order], np.concatenate(sizes)[order], np.concatenate(objects)[order])


def processes(trace: Trace) -> list[int]:
    return sorted({events.process for events in trace.threads.values()})


def busiest_process(trace: Trace) -> int:
    """The process with the most calls: the one that a replay shows."""
    calls: dict[int, int] = {}
    for events in trace.threads.values():
        calls[events.process] = calls.get(events.process, 0) + len(events)
    return max(calls, key=lambda number: (calls[number], -number)) if calls else 0


def kinds(trace: Trace) -> dict[str, int]:
    """How many events there are of each kind."""
    total = np.zeros(32, dtype=np.int64)
    for events in trace.threads.values():
        total += np.bincount(events.kinds, minlength=32)
    return {kind.name.lower(): int(total[kind]) for kind in layout.Kind if total[kind]}


def crossing(trace: Trace) -> int:
    """How many objects were ended by another thread than their maker."""
    count = 0
    for number, events in trace.threads.items():
        dies = layout.IS_DEATH[events.kinds] & ~events.failed
        count += int((dies & (events.ref_threads != number)).sum())
    return count
