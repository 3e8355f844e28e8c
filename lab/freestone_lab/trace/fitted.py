"""A model of a trace: what a program asks for, phase by phase, in a few KiB, and a trace made from it.

Phases begin at equal shares of the births, where the curve of live memory bends, and after the longest pauses. In each,
blocks are counted in cells: by maker, kind, size, end, and for a realloc the size before. A short life has an age, a
long one the phase of its end; so the live memory at the end of each phase is the trace's own. Long lives end in as many
bursts as in the program. The largest blocks, which make the peaks, keep size and place, and how many of their pages
were used. A clock of up to 400 points says when births and ends come. There are as many phases as have room in the
file; if few are too many, rare cells are joined. No sequence of small sizes is in the model.
"""

from __future__ import annotations

import json
import lzma
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from freestone_lab.core import inputs, outputs
from freestone_lab.core.errors import UserError
from freestone_lab.trace import layout, model_check
from freestone_lab.trace.events import Array, Events, Trace, concatenate
from freestone_lab.trace.layout import Kind
from freestone_lab.trace.lives import Lives, lives

SCHEMA = "freestone-trace-model/5"
PHASES = (256, 128, 64, 32, 16, 8)  # as many as have room, beside the bends
ENDING = 1 - 0.5 ** np.arange(5, 12)  # a program that takes itself down frees much at once: finer and finer there
MAKERS = 8  # the busiest threads; the rest is one more
LARGEST = 300  # blocks that keep their place
LARGE_BYTES = 32 << 10
MAKER, ENDER, KIND, ALIGN, CONTINUED, BEFORE, SIZE, PAGES = range(8)  # the columns of a block
BIRTH, END, USE = range(3)  # what an event of a generated trace is
MOST_BYTES = 32 << 10  # of a model as a file, compressed
FINE_BYTES = 1024  # up to here each step of 16 bytes has cells of its own
CLOCK_POINTS = 128
BENDS = 16  # of the curve of live memory, at which phases begin as well
TAKEDOWN = 16  # parts of what is freed after the last birth
PAUSES = 16  # after which phases begin: what is live then counts for long
NEAR = 0.01  # of all births: a block is due so near to the realloc that continues it
SHORT = 0.125  # of a phase: what lives no longer has an age
LEAST_WEIGHTS = (0.0, *(2.0**-k for k in range(22, 4, -1)))  # share of births plus share of bytes of a fine cell
# The columns of a model's cells
CELL = ("phase", "maker", "ender", "kind", "align", "continued", "end", "size", "age", "before", "count")


def size_class(sizes: Array) -> Array:
    """Steps of 16 bytes, as allocators have them, then eight to a doubling."""
    coarse: Array = np.floor(8 * np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return np.where(sizes <= FINE_BYTES, (sizes + 7) // 16, FINE_BYTES + coarse)


def fit(trace: Trace, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The model as JSON: the finest that is no larger than `most_bytes` as a file, else the coarsest."""
    found = _with_takedown(lives(trace))
    count = found.sizes.size
    busiest = [number for number, _ in Counter(found.makers.tolist()).most_common(MAKERS)]
    maker, ender = (np.array([busiest.index(n) if n in busiest else MAKERS for n in column.tolist()])
                    for column in (found.makers, found.enders))  # fmt: skip
    large = np.flatnonzero(found.sizes >= LARGE_BYTES)
    large = np.sort(large[np.argsort(found.sizes[large], kind="stable")[-LARGEST:]])
    small = np.ones(count, dtype=bool)
    small[large] = False
    columns = (maker, ender, found.kinds, found.aligns, found.continued, found.before, found.sizes, found.pages)
    kept = [large, found.ends[large], *(column[large] for column in columns)]
    last = max(int(events.times[-1]) for events in trace.threads.values() if len(events))
    model = {
        "schema": SCHEMA,
        "program": trace.meta.get("program", "program"),
        "step_ns": trace.step_ns,
        "births": count,
        "threads": len(busiest),
        "last": last,
        "clock": _clock(found),
        "large": [np.asarray(column).astype(int).tolist() for column in kept],
    }

    def too_large(keys: _Keys, least: float) -> bool:
        model["cells"] = keys.cells(least)
        return len(packed(model)) > most_bytes

    for phases in PHASES:
        edges = np.concatenate([_edges(found, phases), count + 1 + np.arange(TAKEDOWN)])
        keys = _Keys(found, edges, maker, ender, small)
        model.update(edges=edges.tolist(), bursts=keys.bursts)
        if not too_large(keys, LEAST_WEIGHTS[0]):
            return model
    fits = bisect_left(LEAST_WEIGHTS, True, 1, len(LEAST_WEIGHTS) - 1, key=lambda least: not too_large(keys, least))
    model["cells"] = keys.cells(LEAST_WEIGHTS[fits])
    return model


def _with_takedown(found: Lives) -> Lives:
    """The ends behind the last birth in parts of equal size, in order: each as if it stood behind one birth more."""
    count = found.sizes.size
    late = np.flatnonzero((found.ends == count) & ~found.continued)
    ends = found.ends.copy()
    ends[late[np.argsort(found.end_times[late], kind="stable")]] += np.arange(late.size) * TAKEDOWN // max(1, late.size)
    return replace(found, ends=ends)


def _clock(found: Lives) -> list[list[float]]:
    """Places and their times: at equal steps of both, so that bursts and pauses stay where they were."""
    ended = np.flatnonzero(found.ends >= 0)
    ended = ended[np.argsort(found.end_times[ended], kind="stable")]
    places = np.concatenate([np.arange(found.times.size) * 2 + 1, _end_places(found.ends[ended])])
    times = np.concatenate([found.times, found.end_times[ended]])
    order = np.argsort(places, kind="stable")
    places, times = places[order], np.maximum.accumulate(times[order])
    at = np.searchsorted(times, np.linspace(times[0], times[-1], CLOCK_POINTS))
    chosen = np.unique(np.concatenate([np.linspace(0, times.size - 1, CLOCK_POINTS).astype(int), at, at - 1]))
    chosen = chosen[(chosen >= 0) & (chosen < times.size)]
    return [[round(float(place), 2) for place in places[chosen]], times[chosen].tolist()]


def _end_places(ends: Array) -> Array:
    """A birth's place is twice its number plus 1. The ends between two births lie between their places, in order."""
    order = np.argsort(ends, kind="stable")
    _, first, count = np.unique(ends[order], return_index=True, return_counts=True)
    places = np.empty(ends.size)
    places[order] = (np.arange(ends.size) - np.repeat(first, count) + 1) / np.repeat(count + 1, count)
    return 2 * (ends + places) - 1


def _edges(found: Lives, phases: int) -> Array:
    """Where phases begin, in births."""
    count = found.sizes.size
    ended = np.flatnonzero(found.ends >= 0)
    change = found.sizes.copy()
    np.subtract.at(change, np.minimum(found.ends[ended], count - 1), found.sizes[ended])
    live = np.cumsum(change)
    bends = [0, count - 1]
    for _ in range(BENDS):
        off = np.abs(live - np.interp(np.arange(count), bends, live[bends]))
        bends = sorted({*bends, int(off.argmax())})
    shares = [*np.arange(phases) / phases, *ENDING, 1.0]
    pauses = np.argsort(np.diff(found.times), kind="stable")[-PAUSES:] + 1
    return np.unique([*np.round(count * np.array(shares)).astype(np.int64), *bends[1:-1], *pauses])


class _Keys:
    """The cell of each birth, finely and coarsely."""

    def __init__(self, found: Lives, edges: Array, maker: Array, ender: Array, small: Array) -> None:
        count = found.sizes.size
        phase = np.searchsorted(edges, np.arange(count), side="right") - 1
        end_phase = np.searchsorted(edges, found.ends, side="right") - 1  # after the last birth: one more
        age = found.ends - np.arange(count)
        # -1: never; below 1000: classes of the age; from 1000 on: the phase of the end
        short = age <= (edges[phase + 1] - edges[phase]) * SHORT
        ages = np.log2(np.maximum(age, 1))
        sizes = size_class(found.sizes)
        before = np.where(found.before >= 0, size_class(np.maximum(found.before, 0)), -1)
        who = [phase, maker, ender, found.kinds, found.aligns, found.continued]

        def keys(per_doubling: int, sizes: Array, before: Array) -> Array:
            within = np.floor(per_doubling * ages)
            end = np.where(found.ends < 0, -1, np.where(short, within, 1000 + end_phase)).astype(int)
            return np.stack([column[small] for column in (*who, end, sizes, before)], axis=1)

        self.bursts = [_bursts(found.ends[~short & (end_phase == one)]) for one in range(edges.size)]
        self.fine = keys(4, sizes, before)
        self.coarse = keys(1, 10000 + np.floor(np.log2(np.maximum(found.sizes, 1))).astype(int), np.full(count, -2))
        self.values = [column[small] for column in (found.sizes, np.maximum(age, 0), found.before)]
        _, self.groups = _groups(self.fine)
        self.weights = np.ones(len(self.fine)) / max(1, len(self.fine)) + self.values[0] / max(1, self.values[0].sum())

    def cells(self, least: float) -> list[list[int]]:
        """The columns of CELL. Cells of less than the least weight are joined coarsely."""
        rare = np.bincount(self.groups, self.weights)[self.groups] < least
        unique, groups = _groups(np.where(rare[:, None], self.coarse, self.fine))
        counts = np.maximum(np.bincount(groups), 1)
        size, age, before = (np.bincount(groups, column) / counts for column in self.values)
        steps = 2 ** (np.round(16 * np.log2(np.maximum(age, 1))) / 16)
        means = [np.round(column).astype(int) for column in (size, np.where(age > 0, steps, 0), before)]
        return [column.tolist() for column in (*unique[:, :7].T, *means, counts)]


def _bursts(ends: Array) -> int:
    """In how many places the ends stand; a place with few of them counts less than one."""
    counts = np.unique(ends, return_counts=True)[1].astype(float)
    return max(1, round(counts.sum() ** 2 / (counts**2).sum())) if ends.size else 1


def _groups(keys: Array) -> tuple[Array, Array]:
    """The different rows in order, and the number of each row's own among them."""
    joined = np.zeros(len(keys), dtype=np.int64)
    for column in keys.T:
        _, ranks = np.unique(column, return_inverse=True)
        _, joined = np.unique(joined * (int(ranks.max(initial=0)) + 1) + ranks, return_inverse=True)
    _, first, groups = np.unique(joined, return_index=True, return_inverse=True)
    return keys[first], groups


def packed(model: dict[str, Any]) -> bytes:
    return lzma.compress(json.dumps(model, separators=(",", ":")).encode())


def save(model: dict[str, Any], path: Path) -> int:
    data = packed(model)
    outputs.write_whole(path, data)
    return len(data)


def load(path: Path) -> dict[str, Any]:
    """UserError when the file is no model."""
    try:
        model = json.loads(lzma.decompress(inputs.read_whole(path)))
    except (OSError, EOFError, ValueError, RecursionError, lzma.LZMAError) as error:
        raise UserError(f"{path}: cannot be read as a model: {error}") from error
    if not isinstance(model, dict) or model.get("schema") != SCHEMA:
        raise UserError(f"{path}: expected the schema {SCHEMA}")
    return model


def is_model(path: Path) -> bool:
    try:
        return inputs.read_whole(path, 6) == b"\xfd7zXZ\0"
    except OSError:
        return False


def generate(model: dict[str, Any], seed: int = 1) -> Trace:
    """A trace with the model's blocks: the same for the same seed."""
    try:
        model_check.check(model, MAKERS, CELL)
        return _Generator(model, seed).trace()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"the model makes no sense: {error}") from error
    except MemoryError as error:
        raise UserError(f"the model's {model['births']} births need more memory than there is") from error


class _Generator:
    """Lays births out by phase and puts each end where it is due."""

    def __init__(self, model: dict[str, Any], seed: int) -> None:
        self.model = model
        self.random = np.random.default_rng(seed)

    def _births(self) -> tuple[Array, Array]:
        """(ROW of each birth, the births before its end or -1)."""
        self.edges = np.array(self.model["edges"], dtype=np.int64)
        count = int(self.model["births"])
        large = np.array(self.model["large"], dtype=np.int64).reshape(10, -1).T
        cells = np.array(self.model["cells"], dtype=np.int64).reshape(len(CELL), -1).T
        phase, *who, continued, end, size, age, before, counts = (np.repeat(c, cells[:, -1]) for c in cells.T)
        # The births of a cell stand at equal distances in the phase.
        first = np.cumsum(cells[:, -1]) - cells[:, -1]
        within = np.arange(len(phase)) - np.repeat(first, cells[:, -1])
        place = phase + (within + np.repeat(self.random.random(len(cells)), cells[:, -1])) / counts
        order = np.argsort(place, kind="stable")
        free = np.setdiff1d(np.arange(count), large[:, 0])
        births = np.empty(len(phase), dtype=np.int64)
        births[order] = free
        unknown = np.full(len(phase), -1)
        rows = np.concatenate([np.column_stack([*who, continued, before, size, unknown]), large[:, 2:]])
        due = np.concatenate([self._ends(births, end, age), large[:, 1]])
        births = np.concatenate([births, large[:, 0]])
        self.kept = np.zeros(count, dtype=bool)
        self.kept[large[:, 0]] = True
        order = np.argsort(births, kind="stable")
        return rows[order], np.where(due[order] >= 0, np.maximum(due[order], np.arange(count) + 1), -1)

    def _ends(self, births: Array, end: Array, age: Array) -> Array:
        spread = self.random.random(len(births))
        short = np.minimum(births + np.maximum(1, age), self.model["births"])
        last = len(self.edges) - 1
        target = np.clip(end - 1000, 0, last)
        # Bursts stand at equal distances in their phase; a block ends in one of those behind its birth.
        low, bursts = self.edges[target], np.array(self.model["bursts"], dtype=np.int64)[target]
        width = np.maximum(self.edges[np.minimum(target + 1, last)] - low, 1)
        first = np.clip(np.ceil((births + 1 - low) / width * bursts - 0.5), 0, bursts - 1)
        later = low + (first + np.floor(spread * (bursts - first)) + 0.5) / bursts * width
        found = np.where(end >= 1000, later.astype(np.int64), short)
        return np.where(end < 0, -1, np.minimum(found, self.edges[-1]))

    def _continue(self, rows: Array, ends: Array) -> Array:
        """For each birth the block that it continues, or -1: reallocs and blocks that end by one, each in order."""
        old = np.full(len(rows), -1, dtype=np.int64)
        grows = rows[:, KIND] == Kind.REALLOC
        ended = (rows[:, CONTINUED] > 0) & (ends >= 0)
        # A large block that grows again and again keeps its place: the realloc is the last birth before its end.
        large = self.kept & ended
        large[large] = (self.kept & grows)[ends[large] - 1] & (ends[large] - 1 > np.flatnonzero(large))
        known = np.flatnonzero(large)
        old[ends[known] - 1] = known
        ends[known] -= 1
        grows[ends[known]] = False
        blocks = ended & ~large
        wanted = np.where(rows[:, BEFORE] >= 0, size_class(np.maximum(rows[:, BEFORE], 0)), -1)
        offered = size_class(rows[:, SIZE])
        for one in np.unique(wanted[grows]).tolist():
            self._pair(grows & (wanted == one), blocks & (offered == one), ends, old)
        blocks[old[old >= 0]] = False
        self._pair(grows & (old < 0), blocks, ends, old)  # of what is left, whatever its size
        paired = np.flatnonzero(old >= 0)
        ends[old[paired]] = paired
        return old

    @staticmethod
    def _pair(grows: Array, blocks: Array, ends: Array, old: Array) -> None:
        """Each realloc continues the block that is due nearest to it, of those that are there; if none is near, none.

        Not the one that is due first: what waits for a realloc that never comes would make all after it wait.
        """
        births, offered = np.flatnonzero(grows), np.flatnonzero(blocks)
        queue = offered[np.argsort(ends[offered], kind="stable")].tolist()
        due = ends[queue].tolist()
        far = len(old) * NEAR
        passed: list[int] = []
        at = 0
        for birth in births.tolist():
            while at < len(queue) and due[at] <= birth:
                passed.append(at)
                at += 1
            before = birth - due[passed[-1]] if passed else far
            after = due[at] - birth if at < len(queue) and queue[at] < birth else far
            if before < far and before <= after:
                old[birth] = queue[passed.pop()]
            elif after < far:
                old[birth] = queue[at]
                at += 1

    def trace(self) -> Trace:
        rows, ends = self._births()
        count = len(rows)
        clock = np.array(self.model["clock"], dtype=float)
        old = self._continue(rows, ends)
        ended = ends >= 0
        ended[old[old >= 0]] = False  # by a birth, not by an event of its own
        dying = np.flatnonzero(ended)
        used = np.flatnonzero(rows[:, PAGES] >= 0)
        # An end stands before the birth of its place, what was used behind the birth.
        keys = np.concatenate([np.arange(count) * 2 + 1, _end_places(ends[dying]), used * 2 + 1])
        subject = np.concatenate([np.arange(count), dying, used])
        what = np.repeat([BIRTH, END, USE], [count, dying.size, used.size])
        order = np.argsort(keys, kind="stable")
        keys, subject, what = keys[order], subject[order], what[order]
        times = np.interp(keys, *clock).astype(np.int64)
        actor = np.where((what != END) | (rows[subject, 1] < 0), rows[subject, 0], rows[subject, 1])
        number = np.zeros(count, dtype=np.int64)  # of each birth among its maker's
        for maker in np.unique(rows[:, 0]):
            own = rows[:, 0] == maker
            number[own] = np.arange(int(own.sum()))
        threads = {}
        for one in np.unique(actor):
            mine = actor == one
            threads[int(one)] = _thread(int(one), what[mine], subject[mine], times[mine], rows, number, old)
        first = min(threads)  # it ends with the recording: what is alive then stays alive so long
        threads[first] = _with_end(threads[first], int(self.model["last"]))
        meta = {"program": self.model["program"], "allocator": "unknown", "source": "model"}
        return Trace(str(self.model["program"]), int(self.model["step_ns"]), 0, meta, {"end": "model"}, threads)


def _thread(one: int, what: Array, which: Array, times: Array, rows: Array, number: Array, old: Array) -> Events:
    kinds, birth = rows[which, 2], what == BIRTH
    continues = birth & (old[which] >= 0)
    kinds = np.where(birth & (kinds == Kind.REALLOC) & ~continues, Kind.MALLOC, kinds)
    kinds = np.where(birth, kinds, np.where(what == USE, Kind.TOUCH, Kind.FREE)).astype(np.uint8)
    count = which.size
    named = np.where(continues, old[which], np.where(birth, -1, which))
    return Events(
        0, one, kinds, np.zeros(count, dtype=bool), times, np.where(birth, rows[which, SIZE], -1),
        np.where(birth & layout.IS_ALIGNED[kinds], rows[which, 3], 0).astype(np.uint8),
        np.where(birth, number[which], -1), np.where(named >= 0, rows[named, 0], -1),
        np.where(named >= 0, number[named], -1), np.where(what == USE, rows[which, PAGES], -1),
    )  # fmt: skip


def _with_end(events: Events, time: int) -> Events:
    """The events of a thread, and its end."""
    none, zero = np.full(1, -1, dtype=np.int64), np.zeros(1, dtype=np.uint8)
    kind, at = zero + np.uint8(Kind.THREAD_END), np.maximum(events.times[-1:], time)
    end = Events(0, events.thread, kind, zero.astype(bool), at, none, zero, none, none, none, none)
    return concatenate([events, end])
