"""What `freestone trace info` prints."""

from __future__ import annotations

from freestone_lab.core import units
from freestone_lab.trace import figures
from freestone_lab.trace.events import Trace


def lines(trace: Trace, file_bytes: int) -> list[str]:
    """One fact a line."""
    meta, summary = trace.meta, trace.summary
    machine = ", ".join(str(meta[k]) for k in ("machine", "kernel") if k in meta)
    out = [f"{trace.path}: {meta.get('program', 'a program')} under {meta.get('allocator', 'an unknown allocator')}"]
    if machine:
        out.append(f"  recorded on {machine}, {meta.get('cpus', '?')} CPUs")
    events = max(1, trace.events)
    size = units.size_words(file_bytes)
    out.append(f"  {trace.events} events in {trace.duration_s:.2f} s, {size}, {file_bytes / events:.2f} bytes an event")
    kinds = figures.kinds(trace)
    out.append("  " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    crossing = figures.crossing(trace)
    out.append(f"  {len(trace.threads)} threads; {crossing} objects were freed by another thread than their maker")
    for process in figures.processes(trace):
        out.append(f"  {_process(trace, process)}")
    if trace.gaps:
        lost = sum(gap.last_time - gap.first_time for gap in trace.gaps) * trace.step_ns / 1e9
        out.append(f"  {len(trace.gaps)} gaps, {lost:.1f} s: the writer or the disk did not keep up")
    for key, text in (
        ("unknown_frees", "frees of blocks that are not in the trace"),
        ("lost_frees", "frees not seen"),
        ("dropped_calls", "calls dropped: their threads found no free buffer"),
        ("lost_processes", "processes more than a recording has room for"),
    ):
        if summary.get(key):
            out.append(f"  {summary[key]} {text}")
    if summary.get("end") not in (None, "exit"):
        out.append(f"  the recording was ended by: {summary['end']}")
    if trace.cut:
        out.append(f"  cut short: {trace.cut}")
    return out


def _process(trace: Trace, process: int) -> str:
    changed = figures.changes(trace, process)
    live, objects = changed.live_bytes, changed.live_objects
    text = f"process {process}: {live.size} events"
    if live.size:
        text += f", at most {units.size_words(max(0, int(live.max())))} live in {max(0, int(objects.max()))} objects"
    curve = trace.curves.get(process)
    if curve is not None and curve.resident.size:
        text += f", {units.size_words(int(curve.resident.max()) * 1024)} resident"
    return text
