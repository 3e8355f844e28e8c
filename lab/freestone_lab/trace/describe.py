"""What the native tool says of a trace, and what `freestone trace info` prints of it: by the standard library alone."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from freestone_lab.core import builds, inputs, units
from freestone_lab.core.errors import UserError
from freestone_lab.trace.recording import REPLAYER

# As enum fst_kind of trace/include/freestone/trace.h.
Kind = IntEnum(
    "Kind",
    "MALLOC CALLOC ALIGNED_ALLOC POSIX_MEMALIGN MEMALIGN VALLOC PVALLOC NEW NEW_ARRAY NEW_ALIGNED NEW_ARRAY_ALIGNED "
    "REALLOC_NULL REALLOC FREE FREE_SIZED FREE_ALIGNED_SIZED DELETE DELETE_ARRAY DELETE_SIZED DELETE_ARRAY_SIZED "
    "DELETE_ALIGNED DELETE_ARRAY_ALIGNED REALLOC_ZERO LOST_FREE THREAD_START THREAD_END FORK TOUCH",
)


def replayer(words: Sequence[str], data: bytes | None = None, environment: Mapping[str, str] | None = None) -> bytes:
    """What the replayer prints, called by these words and given `data`. UserError with its words when it fails."""
    done = subprocess.run(words, input=data, capture_output=True, env=environment)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().removeprefix(f"{REPLAYER}: ")
        raise UserError(said or f"{words[0]} ended with status {done.returncode}")
    return done.stdout


def facts(path: Path, partial: bool = False) -> dict[str, Any]:
    """What is in a trace, as the replayer says it. UserError when it cannot be read."""
    inputs.trace(path, 64)  # before anything is built
    printed = replayer([str(builds.built(REPLAYER)), "info", *(["--partial"] if partial else []), str(path)])
    try:
        found: dict[str, Any] = json.loads(printed)
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
    out.append("  " + ", ".join(f"{found['kinds'][kind]} {kind.name.lower()}" for kind in Kind if found["kinds"][kind]))
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
