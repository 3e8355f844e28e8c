"""A trace in memory: all its calls as rows of one array, and what was recorded beside them.

The native tool reads and writes trace files (trace/replayer/rows.h); this module takes its arrays. An object is the row
of its birth. The rows of a thread are in its order, and the threads in the order of their numbers.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from freestone_lab.core import builds, inputs, outputs
from freestone_lab.core.errors import UserError
from freestone_lab.trace.describe import Kind, replayer
from freestone_lab.trace.recording import REPLAYER

Array = np.ndarray[Any, Any]
SIZES_END = 1 << 48  # the recorder keeps the lower 48 bits of a size
NONE = -1

# `size`: the bytes of a birth, the child of a fork, the pages of a touch. `object`: what the event ends or touches, or
# NONE. `align_log2`: 0 where none was asked for. `failed`: the call returned no memory.
ROW = np.dtype(
    [("time", "<i8"), ("size", "<i8"), ("object", "<i8"), ("thread", "<u4"), ("process", "<u4"),
     ("kind", "u1"), ("align_log2", "u1"), ("failed", "?"), ("_", "V5")]
)  # fmt: skip
POINT = np.dtype([("process", "<i8"), ("time", "<i8"), ("resident_kib", "<i8"), ("anonymous_kib", "<i8")])
GAP = np.dtype([("thread", "<i8"), ("first_time", "<i8"), ("last_time", "<i8")])  # thread ALL: of every thread
FRAME = np.dtype([("object", "<i8"), ("address", "<u8")])  # a stack's frames follow each other from the innermost
ALL = 0xFFFFFFFF


class TraceError(UserError):
    """A damaged trace; the message names the file, the place and what is wrong."""


@dataclass
class Trace:
    """A whole trace in memory. Times are steps of `step_ns` since the start."""

    path: str
    step_ns: int
    started_unix_ns: int
    meta: dict[str, Any]
    summary: dict[str, Any]
    rows: Array
    points: Array = field(default_factory=lambda: np.zeros(0, POINT))
    gaps: Array = field(default_factory=lambda: np.zeros(0, GAP))
    frames: Array = field(default_factory=lambda: np.zeros(0, FRAME))
    cut: str = ""  # what is missing at the end, when that was allowed

    def thread(self, number: int) -> Array:
        rows: Array = self.rows[self.rows["thread"] == number]
        return rows


def births(rows: Array) -> Array:
    """Which rows make an object."""
    chosen: Array = (rows["kind"] <= Kind.REALLOC) & ~rows["failed"]
    return chosen


def ends(rows: Array) -> Array:
    """Which rows end an object."""
    chosen: Array = (rows["kind"] >= Kind.REALLOC) & (rows["kind"] <= Kind.LOST_FREE) & ~rows["failed"]
    return chosen


def part(rows: Array, chosen: Array) -> Array:
    """A copy of the rows that a mask chooses; those that name an object that is not chosen name none."""
    place = np.where(chosen, np.cumsum(chosen) - 1, NONE)
    made = rows[chosen]
    named = made["object"] != NONE
    made["object"][named] = place[made["object"][named]]
    return made


def read(path: Path, *, partial: bool = False) -> Trace:
    """The whole trace; TraceError if it is damaged, UserError if it cannot be read. With `partial`, a trace that was
    cut short is read as far as it goes, and `cut` says so."""
    inputs.read_whole(path, 1)
    program = str(builds.built(REPLAYER))
    try:
        data = replayer([program, "rows", *(["--partial"] if partial else []), str(path)])
    except UserError as error:
        raise TraceError(str(error)) from error
    step_ns, started, *counts = (int(n) for n in np.frombuffer(data, "<u8", 9))
    at = 9 * 8

    def take(dtype: Any) -> Any:
        nonlocal at
        found = np.frombuffer(data, dtype, counts.pop(0), at)
        at += found.nbytes
        return found

    rows, points, gaps, frames = (take(dtype) for dtype in (ROW, POINT, GAP, FRAME))
    meta, summary, cut = (take("u1").tobytes() for _ in range(3))
    texts = _json(path, meta), _json(path, summary)
    return Trace(str(path), step_ns, started, *texts, rows, points, gaps, frames, cut.decode())


def _json(path: Path, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: a text in it is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise TraceError(f"{path}: a text in it is no JSON object")
    return found


def write(trace: Trace, path: Path) -> int:
    """Writes `path` whole or not at all; returns its size. Events that name no object are left out."""
    texts = [json.dumps(text, separators=(",", ":")).encode() for text in (trace.meta, trace.summary)]
    arrays = [trace.rows.astype(ROW), trace.points, trace.gaps, trace.frames]
    counts = [trace.step_ns, trace.started_unix_ns, *map(len, arrays), *map(len, texts), 0]
    rows = b"".join([np.array(counts, "<u8").tobytes(), *(array.tobytes() for array in arrays), *texts])
    data = replayer([str(builds.built(REPLAYER)), "trace"], rows)
    outputs.write_whole(path, data)
    return len(data)


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
