"""Makes other traces from traces: a part of one, several side by side, one without what names its origin."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from freestone_lab.core.errors import UserError
from freestone_lab.trace import layout, writer
from freestone_lab.trace.events import Array, Events, Trace
from freestone_lab.trace.layout import Kind


def cut(trace: Trace, begin_s: float = 0.0, end_s: float | None = None, process: int | None = None) -> Trace:
    """What happened between two times; blocks that were live at the beginning are made there.

    With `process`, only that process, with what it inherited.
    """
    begin = int(begin_s * 1e9 / trace.step_ns)
    end = None if end_s is None else int(end_s * 1e9 / trace.step_ns)
    if end is not None and end <= begin:
        raise UserError(f"the end, {end_s} s, is not after the beginning, {begin_s} s")
    return _keep(trace, {n: _within(e, begin, end, process) for n, e in trace.threads.items()}, begin)


def first_events(trace: Trace, count: int) -> Trace:
    """The first `count` events of all threads together, in the order of time."""
    times = np.sort(np.concatenate([events.times for events in trace.threads.values()]), kind="stable")
    if count >= times.size:
        return trace
    end = int(times[count])
    wanted = {n: _within(e, 0, max(1, end), None) for n, e in trace.threads.items()}
    if not any(mask.any() for mask in wanted.values()):
        raise UserError("the trace's first step is longer than that")
    return _keep(trace, wanted, 0)


def to_size(trace: Trace, most_bytes: int, path: Path) -> int:
    """Writes as much of the trace's beginning as fits; returns the size of the file."""
    source = Path(trace.path)
    known = source.stat().st_size if source.is_file() else 0
    events = trace.events
    if known > 2 * most_bytes:  # the writer packs somewhat tighter than the recorder
        events = int(events * most_bytes / known * 1.3)
    for _ in range(8):
        size = writer.write(first_events(trace, max(1, events)), path)
        if size <= most_bytes:
            return size
        events = int(events * most_bytes / size * 0.97)
    raise UserError(f"{path}: no part of the trace fits into {most_bytes} bytes")


def _within(events: Events, begin: int, end: int | None, process: int | None) -> Array:
    chosen = events.times >= begin
    if end is not None:
        chosen &= events.times < end
    if process is not None and events.process != process:
        chosen[:] = False
    return chosen


def _keep(trace: Trace, wanted: dict[int, Array], begin: int) -> Trace:
    """The wanted events, and the births of what lives when they begin. Times count from `begin`."""
    needed = _births_needed(trace, wanted, begin)
    made = copy.copy(trace)
    made.threads = {}
    for number, events in trace.threads.items():
        keep = wanted[number] | needed[number]
        part = events.part(keep)
        if not len(part):
            continue
        before = ~wanted[number][keep]
        # What lives at the beginning is made there, by a plain call of the same kind.
        kinds = np.where(before & (part.kinds == Kind.REALLOC), Kind.REALLOC_NULL, part.kinds).astype(np.uint8)
        refs = np.where(before, -1, part.ref_threads)
        times = np.maximum(part.times, begin) - begin
        made.threads[number] = replace(
            part, kinds=kinds, ref_threads=refs, ref_births=np.where(before, -1, part.ref_births), times=times
        )
    made.curves = {
        process: replace(
            curve,
            times=curve.times[curve.times >= begin] - begin,
            resident=curve.resident[curve.times >= begin],
            anonymous=curve.anonymous[curve.times >= begin],
        )
        for process, curve in trace.curves.items()
    }
    made.stacks, made.gaps = {}, []
    made.summary = {"end": "cut"}
    writer.number_births(made)
    return made


def _births_needed(trace: Trace, wanted: dict[int, Array], begin: int) -> dict[int, Array]:
    """By thread: births before `begin` of objects that were then live, or that a wanted event names."""
    dead: dict[int, list[Array]] = {}
    named: dict[int, list[Array]] = {}
    for number, events in trace.threads.items():
        dies = layout.IS_DEATH[events.kinds] & ~events.failed & (events.times < begin)
        uses = wanted[number] & (events.ref_threads >= 0)
        for found, mask in ((dead, dies), (named, uses)):
            for maker in np.unique(events.ref_threads[mask]):
                chosen = mask & (events.ref_threads == maker)
                found.setdefault(int(maker), []).append(events.ref_births[chosen])
    out = {}
    for number, events in trace.threads.items():
        before = (events.births >= 0) & ~wanted[number]
        gone = np.isin(events.births, np.concatenate(dead.get(number, [np.zeros(0, dtype=np.int64)])))
        used = np.isin(events.births, np.concatenate(named.get(number, [np.zeros(0, dtype=np.int64)])))
        same = bool(wanted[number].any())  # a thread of a process that is kept
        out[number] = before & (used | ((events.times < begin) & ~gone & same))
    return out


def merge(traces: Sequence[Trace]) -> Trace:
    """Several programs at once: all begin at the same time, each with threads and processes of its own."""
    if len({trace.step_ns for trace in traces}) != 1:
        raise UserError("the traces have different steps of time")
    names = "+".join(str(trace.meta.get("program", "program")) for trace in traces)
    made = Trace(names, traces[0].step_ns, traces[0].started_unix_ns, {**traces[0].meta, "program": names})
    made.summary = {"end": "merge"}
    threads = processes = 0
    for trace in traces:
        for number, events in trace.threads.items():
            refs = np.where(events.ref_threads >= 0, events.ref_threads + threads, -1)
            forks = events.kinds == Kind.FORK
            made.threads[number + threads] = replace(
                events,
                thread=number + threads,
                process=events.process + processes,
                ref_threads=refs,
                extras=np.where(forks, events.extras + processes, events.extras),
            )
        for process, curve in trace.curves.items():
            made.curves[process + processes] = curve
        threads += max(trace.threads, default=-1) + 1
        processes += max((e.process for e in trace.threads.values()), default=-1) + 1
    writer.number_births(made)
    return made


def one_process(trace: Trace) -> Trace:
    """All threads as threads of one process, so that a replay runs them together."""
    made = copy.copy(trace)
    made.threads = {n: replace(e, process=0) for n, e in trace.threads.items()}
    made.threads = {n: e.part(e.kinds != Kind.FORK) for n, e in made.threads.items()}
    return made


def anonymise(trace: Trace, round_sizes_to: int = 1) -> Trace:
    """Without program, machine, date and stacks; sizes may be rounded up to a multiple."""
    made = copy.copy(trace)
    made.started_unix_ns = 0
    made.meta = {"program": "anonymous", "allocator": trace.meta.get("allocator", "unknown")}
    made.stacks = {}
    if round_sizes_to > 1:
        unit = round_sizes_to
        for number, events in trace.threads.items():
            sizes = np.where(events.sizes > 0, -(-events.sizes // unit) * unit, events.sizes)
            made.threads = {**made.threads, number: replace(events, sizes=sizes)}
    return made
