"""Writes a trace that is in memory as a file, packed tighter than the recorder has time for."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from freestone_lab.core import outputs
from freestone_lab.trace import layout, varints
from freestone_lab.trace.events import Array, Curve, Events, Trace
from freestone_lab.trace.layout import BlockType, Kind

BLOCK_EVENTS = 1 << 16
LEVEL = 15


@dataclass(frozen=True)
class _Block:
    type: BlockType
    payload: bytes
    process: int = 0
    thread: int = 0
    events: int = 0
    first_time: int = 0
    last_time: int = 0
    first_birth: int = 0


def write(trace: Trace, path: Path, level: int = LEVEL) -> int:
    """Writes `path` whole or not at all; returns its size."""
    packer = zstandard.ZstdCompressor(level=level)
    header = layout.HEADER.pack(
        layout.MAGIC, layout.VERSION, layout.HEADER.size, 0, trace.step_ns, trace.started_unix_ns, bytes(28), 0
    )
    out = [_sealed(header)]
    offset = len(header)
    index = []
    for block in _blocks(trace):
        packed = _pack(block, packer)
        index.append((offset, block.type, block.process, block.thread, block.events, block.first_time, block.last_time))
        out.append(packed)
        offset += len(packed)
    entries = np.array(index, dtype=layout.INDEX)
    out.append(_pack(_Block(BlockType.INDEX, entries.tobytes()), packer))
    out.append(_sealed(layout.END.pack(layout.END_MAGIC, offset, len(index), 0, 0)))
    data = b"".join(out)
    outputs.write_whole(path, data)
    return len(data)


def _sealed(structure: bytes) -> bytes:
    """With its checksum in the last four bytes."""
    return structure[:-4] + struct.pack("<I", layout.crc32c(structure[:-4]))


def _pack(block: _Block, packer: zstandard.ZstdCompressor) -> bytes:
    stored, codec = packer.compress(block.payload), layout.ZSTD
    if len(stored) >= len(block.payload):
        stored, codec = block.payload, layout.RAW
    head = layout.BLOCK.pack(
        layout.BLOCK_MAGIC, block.type, codec, 0, block.process, block.thread, block.events, len(block.payload),
        len(stored), layout.crc32c(stored), block.first_time, block.last_time, block.first_birth, 0, 0,
    )  # fmt: skip
    return _sealed(head) + stored


def _blocks(trace: Trace) -> Iterator[_Block]:
    yield _Block(BlockType.META, _text(trace.meta))
    yield from sorted(_event_blocks(trace), key=lambda block: block.first_time)
    for process, curve in trace.curves.items():
        if curve.times.size:
            yield _curve_block(process, curve)
    for gap in trace.gaps:
        thread = layout.ALL if gap.thread is None else gap.thread
        yield _Block(BlockType.GAP, b"", 0, thread, 0, gap.first_time, gap.last_time)
    for process, found in trace.stacks.items():
        for thread, birth, frames in found:
            numbers = np.array([birth, len(frames), *frames], dtype=np.uint64)
            yield _Block(BlockType.STACKS, varints.encode(numbers), process, thread)
    yield _Block(BlockType.SUMMARY, _text(trace.summary))


def _text(found: dict[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()


def _curve_block(process: int, curve: Curve) -> _Block:
    steps = np.diff(curve.times, prepend=curve.times[:1])
    triples = np.stack([steps, curve.resident, curve.anonymous], axis=1).astype(np.uint64)
    first, last = int(curve.times[0]), int(curve.times[-1])
    return _Block(BlockType.SAMPLES, varints.encode(triples.ravel()), process, 0, curve.times.size, first, last)


def _event_blocks(trace: Trace) -> Iterator[_Block]:
    for number, events in trace.threads.items():
        for begin in range(0, len(events), BLOCK_EVENTS):
            yield _event_block(number, events.part(slice(begin, begin + BLOCK_EVENTS)), _births_before(events, begin))


def _births_before(events: Events, place: int) -> int:
    rest = events.births[place:]
    rest = rest[rest >= 0]
    if rest.size:
        return int(rest[0])
    before = events.births[:place]
    before = before[before >= 0]
    return int(before[-1]) + 1 if before.size else 0


def _event_block(number: int, events: Events, first_birth: int) -> _Block:
    kinds = events.kinds.astype(np.uint8)
    made = events.births >= 0
    so_far = first_birth + np.cumsum(made) - made
    times = events.times
    steps = np.diff(times, prepend=times[:1])
    refers = layout.HAS_REFERENCE[kinds]
    foreign = refers & (events.ref_threads != number)
    flagged = kinds | np.where(events.failed, layout.FAILED, 0) | np.where(foreign, layout.FOREIGN, 0)
    flagged = (flagged | np.where(steps > 0, layout.TIMED, 0)).astype(np.uint8)
    columns = [
        flagged.tobytes(),
        varints.encode(events.sizes[layout.IS_BIRTH[kinds]].astype(np.uint64)),
        events.aligns[layout.IS_ALIGNED[kinds]].astype(np.uint8).tobytes(),
        varints.encode(_references(events, refers, foreign, so_far)),
        varints.encode(steps[steps > 0].astype(np.uint64)),
        varints.encode(events.extras[layout.HAS_EXTRA[kinds]].astype(np.uint64)),
    ]
    payload = struct.pack("<6I", *map(len, columns)) + b"".join(columns)
    first, last = int(times[0]), int(times[-1])
    return _Block(BlockType.EVENTS, payload, events.process, number, len(events), first, last, first_birth)


def _references(events: Events, refers: Array, foreign: Array, so_far: Array) -> Array:
    """One number for an own object, two for another thread's."""
    places = np.flatnonzero(refers)
    lengths = 1 + foreign[places]
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), dtype=np.uint64)
    own = ~foreign[places]
    out[starts[own]] = (so_far[places[own]] - 1 - events.ref_births[places[own]]).astype(np.uint64)
    others = places[~own]
    out[starts[~own]] = events.ref_threads[others].astype(np.uint64)
    steps = np.diff(events.ref_births[others], prepend=0)
    out[starts[~own] + 1] = varints.zigzag(steps.astype(np.int64))
    return out


def number_births(trace: Trace) -> None:
    """Numbers each thread's births from 0 and changes what refers to them; references to nothing are taken out."""
    new: dict[int, tuple[int, Array]] = {}
    for number, events in trace.threads.items():
        births = events.births[events.births >= 0]
        low = int(births.min()) if births.size else 0
        table = np.full(int(births.max()) - low + 1 if births.size else 0, -1, dtype=np.int64)
        table[births - low] = np.arange(births.size)
        new[number] = (low, table)
    for number, events in list(trace.threads.items()):
        trace.threads[number] = _renumbered(events, new)


def _renumbered(events: Events, new: dict[int, tuple[int, Array]]) -> Events:
    own = events.births >= 0
    births = np.where(own, np.cumsum(own) - 1, -1)
    ref_births = np.full(len(events), -1, dtype=np.int64)
    for maker in np.unique(events.ref_threads[events.ref_threads >= 0]):
        low, table = new.get(int(maker), (0, np.zeros(0, dtype=np.int64)))
        chosen = events.ref_threads == maker
        places = events.ref_births[chosen] - low
        inside = (places >= 0) & (places < table.size)
        ref_births[chosen] = (
            np.where(inside, table[np.clip(places, 0, max(0, table.size - 1))], -1) if table.size else -1
        )
    lost = layout.HAS_REFERENCE[events.kinds] & (ref_births < 0)
    reborn = lost & (events.kinds == Kind.REALLOC) & ~events.failed
    kinds = np.where(reborn, Kind.REALLOC_NULL, events.kinds).astype(np.uint8)
    ref_threads = np.where(ref_births < 0, -1, events.ref_threads)
    made = Events(
        events.process, events.thread, kinds, events.failed, events.times, events.sizes, events.aligns, births,
        ref_threads, ref_births, events.extras,
    )  # fmt: skip
    return made.part(~(lost & ~reborn))
