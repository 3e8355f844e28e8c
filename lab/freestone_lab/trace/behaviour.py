"""What `freestone trace stats` shows: sizes, lifetimes, who frees whose blocks, growth, live memory, the bound."""

from dataclasses import dataclass

import numpy as np

from freestone_lab.core.errors import UserError
from freestone_lab.trace import events
from freestone_lab.trace.describe import Kind
from freestone_lab.trace.events import NONE, Array, Trace, births, ends

PAGE = 4096
POINTS = 400
MOST_THREADS = 12


@dataclass(frozen=True)
class Bars:
    """Shares by class; `labels` name the classes."""

    title: str
    labels: list[str]
    shares: list[float]
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """Shares by two classes."""

    title: str
    rows: list[str]
    columns: list[str]
    shares: list[list[float]]


@dataclass(frozen=True)
class Behaviour:
    """The whole page, as figures."""

    bars: list[Bars]
    grids: list[Grid]
    live: list[tuple[float, float]]  # seconds, KiB
    peak_live_kib: float
    least_pages_kib: float  # what the live bytes need at their peak when perfectly packed
    size_sum_note: str


def _size_name(power: int) -> str:
    for unit, shift in (("M", 20), ("K", 10), ("", 0)):
        if power >= shift:
            return f"{1 << (power - shift)}{unit}"
    return str(power)


def _shares(values: Array, weights: Array | None = None) -> tuple[list[int], list[float]]:
    if values.size == 0:
        return [], []
    counts = np.bincount(values, weights=weights)
    low, high = int(values.min()), int(values.max())
    total = float(counts.sum()) or 1.0
    return list(range(low, high + 1)), [float(c) / total for c in counts[low : high + 1]]


def _powers(values: Array) -> Array:
    return np.floor(np.log2(np.maximum(values, 1))).astype(np.int64)


@dataclass(frozen=True)
class Lives:
    """Every birth of a trace in the order of time: who, what, and when it ends, counted in births."""

    makers: Array
    sizes: Array
    aligns: Array
    times: Array
    ends: Array  # number of births before the end; -1 where there is none
    enders: Array


def lives(trace: Trace) -> Lives:
    rows = trace.rows
    made = births(rows)
    if not made.any():
        raise UserError(f"{trace.path}: there is no birth in it")
    born = np.flatnonzero(made)
    born = born[np.argsort(rows["time"][born], kind="stable")]
    rank = np.full(len(rows), -1)
    rank[born] = np.arange(born.size)
    # An end comes after what its thread made before it, and after what others made in earlier steps.
    last = np.maximum.accumulate(np.where(made, np.arange(len(rows)), -1))
    own = np.where((last >= 0) & (rows["thread"][last] == rows["thread"]), rank[last] + 1, 0)
    at = np.maximum(own, np.searchsorted(rows["time"][born], rows["time"], side="left"))
    ended, enders = np.full((2, len(rows)), -1)
    dies = np.flatnonzero(ends(rows) & (rows["object"] != NONE))
    objects = rows["object"][dies]
    ended[objects] = np.maximum(at[dies], rank[objects] + 1)
    enders[objects] = rows["thread"][dies]
    columns = (rows["thread"], rows["size"], rows["align_log2"], rows["time"], ended, enders)
    return Lives(*(column[born] for column in columns))


def describe(trace: Trace) -> Behaviour:
    """Everything from one pass over the births and the live memory of the busiest process."""
    found = lives(trace)
    count = found.sizes.size
    power = _powers(found.sizes)
    ended = found.ends >= 0
    age = np.where(ended, found.ends - np.arange(count), 0)
    born = np.concatenate([[0], np.cumsum(found.sizes)])
    bytes_age = np.where(ended, born[np.minimum(found.ends, count)] - born[np.arange(count)], 0)
    last = found.times[np.minimum(found.ends, count) - 1]
    seconds = np.where(ended, (last - found.times) * trace.step_ns / 1e9, 0.0)
    never = f"{1 - float(ended.mean()):.1%} of the blocks are never freed"
    bars = [
        _bars("Sizes: share of calls", power, "bytes, from"),
        _bars("Sizes: share of bytes", power, "bytes, from", found.sizes.astype(float)),
        _bars("Lifetime in calls", _powers(age[ended]), never),
        _bars("Lifetime in bytes", _powers(bytes_age[ended]), "bytes asked for until the end, from"),
        _bars("Lifetime in microseconds", _powers(seconds[ended] * 1e6), "microseconds, from"),
        _bars("Growth by realloc", _growth(trace.rows), "new size over old, 0 is below one and 1 is the same"),
        _bars("Alignments asked for", found.aligns[found.aligns > 0].astype(np.int64), "bytes, from"),
    ]
    grids = [_size_by_age(power[ended], _powers(age[ended])), _makers(found)]
    changed = events.changes(trace, events.busiest_process(trace))
    live = changed.live_bytes
    step = max(1, live.size // POINTS)
    curve = [
        (float(changed.times[i]) * trace.step_ns / 1e9, float(live[i : i + step].max()) / 1024)
        for i in range(0, live.size, step)
    ]
    peak = int(live.max()) if live.size else 0
    pages = -(-peak // PAGE) * PAGE / 1024
    note = f"{count} births, {int(ended.sum())} ends, {int(found.sizes.sum())} bytes asked for in all"
    return Behaviour(bars, grids, curve, peak / 1024, pages, note)


def _bars(title: str, classes: Array, note: str, weights: Array | None = None) -> Bars:
    powers, shares = _shares(classes, weights)
    return Bars(title, [_size_name(p) for p in powers], shares, note)


def _growth(rows: Array) -> Array:
    """Binary logarithm of new over old, two steps above zero: 0 shrinks, 1 stays, 2 up to double, ..."""
    chosen = (rows["kind"] == Kind.REALLOC) & ~rows["failed"] & (rows["object"] != NONE)
    old, new = events.ended_sizes(rows)[chosen], rows["size"][chosen]
    grown = 2 + np.floor(np.log2(np.maximum(new / np.maximum(old, 1), 1.0001)))
    return np.minimum(np.where(new < old, 0, np.where(new == old, 1, grown)).astype(np.int64), 20)


def _size_by_age(sizes: Array, ages: Array) -> Grid:
    rows = sorted(set(sizes.tolist()))
    columns = sorted(set((ages // 2).tolist()))
    total = max(1, sizes.size)
    shares = [[float(((sizes == r) & (ages // 2 == c)).sum()) / total for c in columns] for r in rows]
    title = "Size (rows, bytes from) by lifetime (columns, births from): share of blocks"
    return Grid(title, [_size_name(r) for r in rows], [_size_name(2 * c) for c in columns], shares)


def _makers(found: Lives) -> Grid:
    names, counts = np.unique(found.makers, return_counts=True)
    chosen = names[np.argsort(-counts)][:MOST_THREADS].tolist()
    total = max(1, found.makers.size)

    def share(maker: int, ender: int) -> float:
        return float(((found.makers == maker) & (found.enders == ender)).sum()) / total

    shares = [[share(maker, ender) for ender in [*chosen, -1]] for maker in chosen]
    threads = [f"thread {n}" for n in chosen]
    return Grid("Maker (rows) and who frees (columns): share of blocks", threads, [*threads, "nobody"], shares)
