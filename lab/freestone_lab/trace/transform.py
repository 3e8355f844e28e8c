"""Makes other traces from traces: a part of one, several side by side, one without what names its origin."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from freestone_lab.core.errors import UserError
from freestone_lab.trace import events
from freestone_lab.trace.describe import Kind
from freestone_lab.trace.events import NONE, Array, Trace


def cut(trace: Trace, begin_s: float = 0.0, end_s: float | None = None, process: int | None = None) -> Trace:
    """What happened between two times; blocks that were live at the beginning are made there.

    With `process`, only that process, with what it inherited.
    """
    begin = int(begin_s * 1e9 / trace.step_ns)
    wanted = trace.rows["time"] >= begin
    if end_s is not None:
        end = int(end_s * 1e9 / trace.step_ns)
        if end <= begin:
            raise UserError(f"the end, {end_s} s, is not after the beginning, {begin_s} s")
        wanted &= trace.rows["time"] < end
    if process is not None:
        wanted &= trace.rows["process"] == process
    return _keep(trace, wanted, begin)


def first_events(trace: Trace, count: int) -> Trace:
    """The first `count` events of all threads together, in the order of time."""
    times = np.sort(trace.rows["time"])
    if count >= times.size:
        return trace
    wanted = trace.rows["time"] < max(1, int(times[count]))
    if not wanted.any():
        raise UserError("the trace's first step is longer than that")
    return _keep(trace, wanted, 0)


def to_size(trace: Trace, most_bytes: int, path: Path) -> int:
    """Writes as much of the trace's beginning as fits; returns the size of the file."""
    source = Path(trace.path)
    known = source.stat().st_size if source.is_file() else 0
    count = len(trace.rows)
    if known > 2 * most_bytes:  # the writer packs somewhat tighter than the recorder
        count = int(count * most_bytes / known * 1.3)
    for _ in range(8):
        size = events.write(first_events(trace, max(1, count)), path)
        if size <= most_bytes:
            return size
        count = int(count * most_bytes / size * 0.97)
    raise UserError(f"{path}: no part of the trace fits into {most_bytes} bytes")


def _keep(trace: Trace, wanted: Array, begin: int) -> Trace:
    """The wanted events, and the births of what lives when they begin. Times count from `begin`."""
    chosen = wanted | _births_needed(trace.rows, wanted, begin)
    rows = events.part(trace.rows, chosen)
    # What lives at the beginning is made there, by a plain call of the same kind.
    before = ~wanted[chosen]
    rows["kind"][before & (rows["kind"] == Kind.REALLOC)] = Kind.REALLOC_NULL
    rows["object"][before] = NONE
    rows["time"] = np.maximum(rows["time"], begin) - begin
    points = trace.points[trace.points["time"] >= begin]
    points["time"] -= begin
    return Trace(trace.path, trace.step_ns, trace.started_unix_ns, trace.meta, {"end": "cut"}, rows, points)


def _births_needed(rows: Array, wanted: Array, begin: int) -> Array:
    """Which rows are births before `begin` of objects that were then live, or that a wanted event names."""
    named = rows["object"] != NONE
    gone, used = np.zeros((2, len(rows)), dtype=bool)
    gone[rows["object"][events.ends(rows) & named & (rows["time"] < begin)]] = True
    used[rows["object"][wanted & named]] = True
    kept_threads = np.isin(rows["thread"], rows["thread"][wanted])  # of a process that is kept
    alive = (rows["time"] < begin) & ~gone & kept_threads
    mask: Array = events.births(rows) & ~wanted & (used | alive)
    return mask


def merge(traces: Sequence[Trace]) -> Trace:
    """Several programs at once: all begin at the same time, each with threads and processes of its own."""
    if len({trace.step_ns for trace in traces}) != 1:
        raise UserError("the traces have different steps of time")
    names = "+".join(str(trace.meta.get("program", "program")) for trace in traces)
    parts, curves = [], []
    threads = processes = before = 0
    for trace in traces:
        rows, points = trace.rows.copy(), trace.points.copy()
        rows["object"][rows["object"] != NONE] += before
        rows["size"][rows["kind"] == Kind.FORK] += processes
        rows["thread"] += threads
        rows["process"] += processes
        points["process"] += processes
        parts.append(rows)
        curves.append(points)
        before += len(rows)
        threads = int(rows["thread"].max(initial=0)) + 1
        processes = int(rows["process"].max(initial=0)) + 1
    first = traces[0]
    return Trace(
        names, first.step_ns, first.started_unix_ns, {**first.meta, "program": names}, {"end": "merge"},
        np.concatenate(parts), np.concatenate(curves),
    )  # fmt: skip


def one_process(trace: Trace) -> Trace:
    """All threads as threads of one process, so that a replay runs them together."""
    rows = events.part(trace.rows, trace.rows["kind"] != Kind.FORK)
    rows["process"] = 0
    return replace(trace, rows=rows, frames=np.zeros(0, events.FRAME))


def anonymise(trace: Trace, round_sizes_to: int = 1) -> Trace:
    """Without program, machine, date and stacks; sizes may be rounded up to a multiple."""
    rows = trace.rows.copy()
    asked = rows["kind"] <= Kind.REALLOC
    rows["size"][asked] = -(-rows["size"][asked] // round_sizes_to) * round_sizes_to
    meta = {"program": "anonymous", "allocator": trace.meta.get("allocator", "unknown")}
    return replace(trace, started_unix_ns=0, meta=meta, rows=rows, frames=np.zeros(0, events.FRAME))
