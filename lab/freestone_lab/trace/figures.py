"""What a trace comes to: calls by kind, live bytes over time, its peak. Everything is computed by whole arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freestone_lab.trace.describe import Kind
from freestone_lab.trace.events import NONE, Array, Trace, births, ends


@dataclass(frozen=True)
class Changes:
    """Live memory after each event of one process, in the order of time."""

    times: Array  # steps
    live_bytes: Array
    live_objects: Array


def ended_sizes(rows: Array) -> Array:
    """The size of what each row ends; 0 where it ends nothing, or what is not in the trace."""
    return np.where(ends(rows) & (rows["object"] != NONE), rows["size"][rows["object"]], 0)


def changes(trace: Trace, process: int) -> Changes:
    """The live memory of a process; a forked one begins with nothing here."""
    rows = trace.rows
    made, ended = births(rows), ends(rows)
    chosen = np.flatnonzero(rows["process"] == process)
    chosen = chosen[np.argsort(rows["time"][chosen], kind="stable")]
    live_bytes = np.where(made, rows["size"], 0) - ended_sizes(rows)
    live_objects = made.astype(np.int64) - ended
    return Changes(rows["time"][chosen], np.cumsum(live_bytes[chosen]), np.cumsum(live_objects[chosen]))


def busiest_process(trace: Trace) -> int:
    """The process with the most calls: the one that a replay shows."""
    numbers, calls = np.unique(trace.rows["process"], return_counts=True)
    return int(numbers[np.argmax(calls)]) if numbers.size else 0


def kinds(trace: Trace) -> dict[str, int]:
    """How many events there are of each kind."""
    total = np.bincount(trace.rows["kind"], minlength=len(Kind) + 1)
    return {kind.name.lower(): int(total[kind]) for kind in Kind if total[kind]}


def crossing(trace: Trace) -> int:
    """How many objects were ended by another thread than their maker."""
    rows = trace.rows[ends(trace.rows)]
    return int((trace.rows["thread"][rows["object"]] != rows["thread"])[rows["object"] != NONE].sum())
