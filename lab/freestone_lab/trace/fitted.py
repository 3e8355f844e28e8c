"""A model of a trace: what a program asks for, phase by phase, in a few KiB, and a trace made from it.

A phase is a share of the births. In each, blocks are counted by maker, size (four classes to a doubling, with
their mean) and end: after so many births where that is within the phase, else the phase of the end. So the live memory
at the end of each phase is the trace's own. The largest blocks, which make the peaks, keep size and place, and how many
of their pages were used. A realloc
continues a block that ends by one, in order. No sequence of small sizes and no time stamp is in the model.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.trace import layout
from freestone_lab.trace.events import Array, Events, Trace
from freestone_lab.trace.layout import Kind

SCHEMA = "freestone-trace-model/2"
# Sixteen phases, the last one cut finer and finer towards the end: a program that takes itself down frees much at once.
PHASE_EDGES = np.concatenate([np.arange(16) / 16, 1 - 0.5 ** np.arange(5, 12), [1.0]])
MAKERS = 8  # the busiest threads; the rest is one more
LARGEST = 300  # blocks that keep their place
LARGE_BYTES = 32 << 10
BIRTH, END, USE = range(3)  # what an event of a generated trace is
FEW = 0.002  # cells below this share of a phase's births and of its bytes are joined


@dataclass(frozen=True)
class Lives:
    """Every birth of a trace in the order of time: who, what, and when it ends, counted in births."""

    makers: Array
    kinds: Array
    sizes: Array
    aligns: Array
    ends: Array  # number of births before the end; -1 where there is none
    enders: Array
    times: Array
    continued: Array  # ended by a realloc
    pages: Array  # that were used of it, as far as was seen; -1: not known


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
        parts.append(
            (np.full(count, number), events.kinds[made], events.sizes[made], events.aligns[made], events.times[made])
        )
    if not total:
        raise UserError(f"{trace.path}: there is no birth in it")
    makers, kinds, sizes, aligns, times = (np.concatenate([p[i] for p in parts]) for i in range(5))
    order = np.argsort(times, kind="stable")
    rank = np.empty(total, dtype=np.int64)
    rank[order] = np.arange(total)
    ends = np.full(total, -1, dtype=np.int64)
    enders = np.full(total, -1, dtype=np.int64)
    continued = np.zeros(total, dtype=bool)
    pages = np.full(total, -1, dtype=np.int64)
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
        continued[places] = events.kinds[dies] == Kind.REALLOC
        seen = events.kinds == Kind.TOUCH
        touched = np.array([starts.get(int(t), -1) for t in events.ref_threads[seen]], dtype=np.int64)
        np.maximum.at(pages, touched + events.ref_births[seen], events.extras[seen])
    return Lives(*(a[order] for a in (makers, kinds, sizes, aligns, ends, enders, times, continued, pages)))


def _size_class(sizes: Array) -> Array:
    classes: Array = np.floor(4 * np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return classes


def fit(trace: Trace) -> dict[str, Any]:
    """The model as JSON."""
    found = lives(trace)
    count = found.sizes.size
    edges = np.unique(np.round(count * PHASE_EDGES)).astype(np.int64)
    phase = np.searchsorted(edges, np.arange(count), side="right") - 1
    busiest = [number for number, _ in Counter(found.makers.tolist()).most_common(MAKERS)]
    maker = np.array([busiest.index(m) if m in busiest else MAKERS for m in found.makers.tolist()])
    ender = np.array([busiest.index(m) if m in busiest else MAKERS for m in found.enders.tolist()])
    age = found.ends - np.arange(count)
    end_phase = np.searchsorted(edges, np.minimum(found.ends, count - 1), side="right") - 1
    short = (found.ends >= 0) & (end_phase == phase)
    # -1: never; below 1000: four classes to a doubling of the age; from 1000 on: the phase of the end
    end = np.where(found.ends < 0, -1, np.where(short, 4 * np.log2(np.maximum(age, 1)), 1000 + end_phase)).astype(int)
    large = np.flatnonzero(found.sizes >= LARGE_BYTES)
    large = np.sort(large[np.argsort(found.sizes[large], kind="stable")[-LARGEST:]])
    columns = (
        maker,
        ender,
        found.kinds,
        found.aligns,
        np.arange(count),
        found.ends,
        found.sizes,
        found.continued,
        found.pages,
    )
    kept = [[int(column[i]) for column in columns] for i in large]
    small = np.ones(count, dtype=bool)
    small[large] = False
    phases = []
    for number in range(len(edges) - 1):
        chosen = (phase == number) & small
        if not chosen.any():
            continue
        last = int(found.times[phase == number][-1])
        cells = _cells(found, chosen, maker, ender, end, age)
        phases.append({"births": int((phase == number).sum()), "end": last, "cells": cells})
    about = {"program": trace.meta.get("program", "program"), "step_ns": trace.step_ns, "threads": len(busiest)}
    return {"schema": SCHEMA, **about, "phases": phases, "large": kept}


def _cells(found: Lives, chosen: Array, maker: Array, ender: Array, end: Array, age: Array) -> list[list[int]]:
    """[maker, ender, kind, alignment, end, continued, mean size, mean age, count] of each cell of a phase."""
    sizes = found.sizes[chosen]
    classes = _size_class(sizes)
    rare = np.bincount(classes, weights=np.ones(classes.size))[classes] < FEW * classes.size
    rare &= sizes < 0.02 * sizes.sum()
    classes = np.where(rare, classes // 8 * 8 + 500, classes)
    keys = np.stack(
        [maker[chosen], ender[chosen], found.kinds[chosen], found.aligns[chosen], end[chosen], found.continued[chosen],
         classes], axis=1,
    )  # fmt: skip
    unique, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.ravel()
    total = np.bincount(inverse, weights=sizes)
    ages = np.bincount(inverse, weights=np.maximum(age[chosen], 0))
    return [
        [*map(int, row[:6]), round(total[i] / n), round(ages[i] / n), int(n)]
        for i, (row, n) in enumerate(zip(unique, counts, strict=True))
    ]


def save(model: dict[str, Any], path: Path) -> int:
    data = gzip.compress(json.dumps(model, separators=(",", ":")).encode(), mtime=0)
    outputs.write_whole(path, data)
    return len(data)


def load(path: Path) -> dict[str, Any]:
    """UserError when the file is no model."""
    try:
        model = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a model: {error}") from error
    if not isinstance(model, dict) or model.get("schema") != SCHEMA:
        raise UserError(f"{path}: expected the schema {SCHEMA}")
    return model


def is_model(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"
    except OSError:
        return False


def generate(model: dict[str, Any], seed: int = 1) -> Trace:
    """A trace with the model's blocks: the same for the same seed."""
    try:
        return _Generator(model, seed).trace()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"the model makes no sense: {error!r}") from error


class _Generator:
    """Lays births out by phase and puts each end where it is due."""

    def __init__(self, model: dict[str, Any], seed: int) -> None:
        self.model = model
        self.random = np.random.default_rng(seed)

    def _births(self) -> tuple[Array, Array]:
        """([maker, ender, kind, alignment, continued, size, pages] of each birth, the births before its end or -1)."""
        phases = self.model["phases"]
        self.edges = np.concatenate([[0], np.cumsum([p["births"] for p in phases])])
        large = np.array(self.model["large"], dtype=np.int64).reshape(-1, 9)
        rows, ends = [], []
        for number, phase in enumerate(phases):
            cells = np.array(phase["cells"], dtype=np.int64).reshape(-1, 9)
            each = np.repeat(cells, cells[:, 8], axis=0)
            each = each[self.random.permutation(len(each))]
            low, high = self.edges[number], self.edges[number + 1]
            taken = large[(large[:, 4] >= low) & (large[:, 4] < high), 4]
            free = np.setdiff1d(np.arange(low, high), taken)[: len(each)]
            rows.append(np.column_stack([free, each[:, [0, 1, 2, 3, 5, 6]], np.full(len(free), -1)]))
            ends.append(self._ends(each, free, high))
        rows.append(large[:, [4, 0, 1, 2, 3, 7, 6, 8]])
        ends.append(large[:, 5])
        every, due = np.concatenate(rows), np.concatenate(ends)
        order = np.argsort(every[:, 0], kind="stable")
        self.kept = (np.arange(len(every)) >= len(every) - len(large))[order]
        return every[order][:, 1:], np.where(due[order] >= 0, np.maximum(due[order], np.arange(len(order)) + 1), -1)

    def _ends(self, each: Array, place: Array, last: int) -> Array:
        spread = self.random.random(len(each))
        age = np.maximum(1, np.round(each[:, 7] * (0.75 + 0.5 * spread))).astype(np.int64)
        within = np.minimum(place + age, np.maximum(place + 1, last - 1))
        target = np.clip(each[:, 4] - 1000, 0, len(self.edges) - 2)
        later = self.edges[target] + spread * (self.edges[target + 1] - self.edges[target])
        return np.where(each[:, 4] < 0, -1, np.where(each[:, 4] >= 1000, later.astype(np.int64), within))

    def _continue(self, rows: Array, ends: Array) -> Array:
        """For each birth the block that it continues, or -1: reallocs and blocks that end by one, each in order."""
        old = np.full(len(rows), -1, dtype=np.int64)
        grows = rows[:, 2] == Kind.REALLOC
        ended = (rows[:, 4] > 0) & (ends >= 0)
        # A large block that grows again and again keeps its place: the realloc is the last birth before its end.
        large = self.kept & ended
        large[large] = (self.kept & grows)[ends[large] - 1] & (ends[large] - 1 > np.flatnonzero(large))
        known = np.flatnonzero(large)
        old[ends[known] - 1] = known
        ends[known] -= 1
        grows[ends[known]] = False
        births = np.flatnonzero(grows)
        blocks = np.flatnonzero(ended & ~large)
        blocks = blocks[np.argsort(ends[blocks], kind="stable")]
        at = 0
        for birth in births.tolist():
            if at == blocks.size:
                break
            if blocks[at] < birth:  # else it is not there yet, and this realloc makes a block of its own
                old[birth] = blocks[at]
                at += 1
        paired = np.flatnonzero(old >= 0)
        ends[old[paired]] = paired
        return old

    def trace(self) -> Trace:
        rows, ends = self._births()
        count = len(rows)
        clock = np.concatenate([[0], np.maximum.accumulate([int(p["end"]) for p in self.model["phases"]])])
        old = self._continue(rows, ends)
        ended = ends >= 0
        ended[old[old >= 0]] = False  # by a birth, not by an event of its own
        dying = np.flatnonzero(ended)
        used = np.flatnonzero(rows[:, 6] >= 0)
        # An end stands before the birth of its place, what was used behind the birth.
        keys = np.concatenate([np.arange(count) * 2 + 1, ends[dying] * 2, used * 2 + 1])
        subject = np.concatenate([np.arange(count), dying, used])
        what = np.repeat([BIRTH, END, USE], [count, dying.size, used.size])
        order = np.argsort(keys, kind="stable")
        keys, subject, what = keys[order], subject[order], what[order]
        times = np.interp(keys / 2, self.edges, clock).astype(np.int64)
        actor = np.where((what != END) | (rows[subject, 1] < 0), rows[subject, 0], rows[subject, 1])
        number = np.zeros(count, dtype=np.int64)  # of each birth among its maker's
        for maker in np.unique(rows[:, 0]):
            own = rows[:, 0] == maker
            number[own] = np.arange(int(own.sum()))
        threads = {}
        for one in np.unique(actor):
            mine = actor == one
            threads[int(one)] = _thread(int(one), what[mine], subject[mine], times[mine], rows, number, old)
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
        0, one, kinds, np.zeros(count, dtype=bool), times, np.where(birth, rows[which, 5], -1),
        np.where(birth & layout.IS_ALIGNED[kinds], rows[which, 3], 0).astype(np.uint8),
        np.where(birth, number[which], -1), np.where(named >= 0, rows[named, 0], -1),
        np.where(named >= 0, number[named], -1), np.where(what == USE, rows[which, 6], -1),
    )  # fmt: skip
