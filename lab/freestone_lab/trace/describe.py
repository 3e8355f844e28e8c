"""What `freestone trace info` prints. The replayer reads the trace, so the standard library is enough here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from freestone_lab.core import builds, inputs, units
from freestone_lab.core.errors import UserError
from freestone_lab.trace.recording import REPLAYER

KINDS = (
    "", "malloc", "calloc", "aligned_alloc", "posix_memalign", "memalign", "valloc", "pvalloc", "new", "new_array",
    "new_aligned", "new_array_aligned", "realloc_null", "realloc", "free", "free_sized", "free_aligned_sized", "delete",
    "delete_array", "delete_sized", "delete_array_sized", "delete_aligned", "delete_array_aligned", "realloc_zero",
    "lost_free", "thread_start", "thread_end", "fork", "touch",
)  # fmt: skip


def facts(path: Path, partial: bool = False) -> dict[str, Any]:
    """What is in a trace, as the replayer says it. UserError when it cannot be read."""
    inputs.trace(path, 64)  # before anything is built
    words = [str(builds.built(REPLAYER)), "info", *(["--partial"] if partial else []), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise UserError(done.stderr.strip().removeprefix(f"{REPLAYER}: "))
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: what it says of itself is no JSON: {error}") from error
    return {**found, "path": str(path)}


def lines(found: dict[str, Any]) -> list[str]:
    """One fact a line."""
    meta, summary = found["meta"], found["summary"]
    machine = ", ".join(str(meta[k]) for k in ("machine", "kernel") if k in meta)
    out = [f"{found['path']}: {meta.get('program', 'a program')} under {meta.get('allocator', 'an unknown allocator')}"]
    if machine:
        out.append(f"  recorded on {machine}, {meta.get('cpus', '?')} CPUs")
    count, size = found["events"], units.size_words(found["bytes"])
    each = f"{found['bytes'] / max(1, count):.2f} bytes an event"
    out.append(f"  {count} events in {found['last'] * found['step_ns'] / 1e9:.2f} s, {size}, {each}")
    out.append("  " + ", ".join(f"{n} {kind}" for n, kind in zip(found["kinds"], KINDS, strict=True) if n))
    crossing = f"{found['crossing']} objects were freed by another thread than their maker"
    out.append(f"  {found['threads']} threads; {crossing}")
    out += [f"  {_process(one)}" for one in found["processes"]]
    if found["gaps"]:
        lost = sum(last - first for first, last in found["gaps"]) * found["step_ns"] / 1e9
        out.append(f"  {len(found['gaps'])} gaps, {lost:.1f} s: the writer or the disk did not keep up")
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
    if found["cut"]:
        out.append(f"  cut short: {found['cut']}")
    return out


def _process(one: dict[str, Any]) -> str:
    text = f"process {one['process']}: {one['events']} events"
    if one["events"]:
        text += f", at most {units.size_words(one['live_bytes'])} live in {one['live_objects']} objects"
    if one.get("resident_kib"):
        text += f", {units.size_words(one['resident_kib'] * 1024)} resident"
    return text
