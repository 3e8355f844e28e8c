"""Reads a trace file into numpy arrays.

Whatever a file holds, the outcome is its events, or a TraceError that says where it is wrong and how.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from freestone_lab.core import inputs
from freestone_lab.trace import layout, varints
from freestone_lab.trace.events import Array, Curve, Events, Gap, Stack, Trace, TraceError, concatenate
from freestone_lab.trace.layout import BlockType

CUT_OFF = ("write-error", "max-bytes")  # ends of a recording (its summary's, which may be missing) that lost events


@dataclass(frozen=True)
class BlockHead:
    """A block as its header describes it."""

    offset: int
    type: int
    codec: int
    process: int
    thread: int
    events: int
    raw_bytes: int
    stored_bytes: int
    payload_crc: int
    first_time: int
    last_time: int
    first_birth: int


class File:
    """An opened trace: its header is checked, its blocks are read one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.data = inputs.read_whole(path)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
        data = self.data
        if len(data) < layout.HEADER.size or data[:8] != layout.MAGIC:
            what = "empty" if not data else "cut short" if layout.MAGIC.startswith(data[:8]) else "no trace"
            raise self.error(0, f"{what}: expected the {layout.HEADER.size} bytes of a trace's header")
        fields = layout.HEADER.unpack_from(data)
        if layout.crc32c(data[: layout.HEADER.size - 4]) != fields[-1]:
            raise self.error(0, "the header's checksum is wrong")
        if fields[1] != layout.VERSION:
            raise self.error(8, f"version {fields[1]}; this reader knows {layout.VERSION}")
        if fields[2] != layout.HEADER.size or fields[4] == 0:
            raise self.error(10, "the header's sizes are wrong")
        self.step_ns, self.started_unix_ns = fields[4], fields[5]
        self.ended = False

    def error(self, offset: int, text: str) -> TraceError:
        return TraceError(f"{self.path}: at byte {offset}: {text}")

    def blocks(self) -> Iterator[BlockHead]:
        """Every block before the end, whose header is right. TraceError where the file ends without its end mark."""
        offset = layout.HEADER.size
        count = 0
        while True:
            rest = len(self.data) - offset
            if rest < layout.BLOCK.size:
                raise self.error(offset, f"cut short after block {count}: there is no end mark")
            head = self._head(offset)
            if head.type == BlockType.INDEX:
                self._check_end(head, count)
                return
            yield head
            offset += layout.BLOCK.size + head.stored_bytes
            count += 1

    def _head(self, offset: int) -> BlockHead:
        raw = self.data[offset : offset + layout.BLOCK.size]
        (
            magic,
            type_,
            codec,
            _,
            process,
            thread,
            events,
            raw_bytes,
            stored,
            payload_crc,
            first,
            last,
            birth,
            _,
            crc,
        ) = layout.BLOCK.unpack(raw)
        if magic != layout.BLOCK_MAGIC or layout.crc32c(raw[:-4]) != crc:
            raise self.error(offset, "the checksum of a block's header is wrong")
        if raw_bytes > layout.MOST_PAYLOAD or stored > layout.MOST_PAYLOAD or codec not in (layout.RAW, layout.ZSTD):
            raise self.error(offset, "a block's header is impossible")
        if offset + layout.BLOCK.size + stored > len(self.data):
            raise self.error(offset, f"cut short: the block has {stored} bytes more than the file")
        return BlockHead(
            offset, type_, codec, process, thread, events, raw_bytes, stored, payload_crc, first, last, birth
        )  # fmt: skip

    def _check_end(self, index: BlockHead, count: int) -> None:
        at = index.offset + layout.BLOCK.size + index.stored_bytes
        raw = self.data[at:]
        if len(raw) < layout.END.size:
            raise self.error(at, "cut short: there is no end mark")
        magic, index_offset, blocks, _, crc = layout.END.unpack_from(raw)
        if magic != layout.END_MAGIC or layout.crc32c(raw[: layout.END.size - 4]) != crc:
            raise self.error(at, "the checksum of the end mark is wrong")
        if index_offset != index.offset or blocks != count:
            raise self.error(at, "the end mark names another index")
        if len(raw) > layout.END.size:
            raise self.error(at + layout.END.size, f"{len(raw) - layout.END.size} bytes follow the end mark")
        entries = np.frombuffer(self.payload(index), dtype=np.uint8)
        if entries.size != count * layout.INDEX.itemsize:
            raise self.error(index.offset, "the index has another number of blocks than the file")
        self.ended = True

    def payload(self, head: BlockHead) -> bytes:
        """The unpacked payload, after its checksum was checked."""
        begin = head.offset + layout.BLOCK.size
        stored = self.data[begin : begin + head.stored_bytes]
        if layout.crc32c(stored) != head.payload_crc:
            raise self.error(begin, "the checksum of a block is wrong")
        if head.codec == layout.RAW:
            raw = stored
        else:
            try:
                if zstandard.frame_content_size(stored) > layout.MOST_PAYLOAD:  # so much would be allocated
                    raise self.error(begin, "a block unpacks to more than a block may have")
                raw = zstandard.ZstdDecompressor().decompress(stored, max_output_size=head.raw_bytes)
            except zstandard.ZstdError as error:
                raise self.error(begin, f"a block does not unpack: {error}") from error
        if len(raw) != head.raw_bytes:
            raise self.error(begin, f"a block unpacks to {len(raw)} bytes; its header says {head.raw_bytes}")
        return raw

    def events(self, head: BlockHead) -> Events:
        try:
            return _decode_events(head, self.payload(head))
        except (ValueError, IndexError) as error:
            if isinstance(error, TraceError):
                raise
            raise self.error(head.offset, f"a block of events is wrong: {error}") from error


def _columns(raw: bytes) -> list[bytes]:
    if len(raw) < layout.COLUMNS * 4:
        raise ValueError("its columns are missing")
    lengths = [int(n) for n in np.frombuffer(raw, dtype="<u4", count=layout.COLUMNS)]
    if layout.COLUMNS * 4 + sum(lengths) != len(raw):
        raise ValueError("its columns have other lengths than it says")
    ends = np.cumsum([layout.COLUMNS * 4, *lengths])
    return [raw[int(ends[i]) : int(ends[i + 1])] for i in range(layout.COLUMNS)]


def _spread(count: int, where: Array, values: Array, name: str, empty: int = -1) -> Array:
    """`values` at the places where they belong; every place must have one."""
    if int(where.sum()) != values.size:
        raise ValueError(f"{values.size} {name} for {int(where.sum())} events")
    out = np.full(count, empty, dtype=np.int64)
    out[where] = values.astype(np.int64)
    return out


def _decode_events(head: BlockHead, raw: bytes) -> Events:
    columns = _columns(raw)
    flagged = np.frombuffer(columns[0], dtype=np.uint8)
    if flagged.size != head.events:
        raise ValueError(f"{flagged.size} kinds for {head.events} events")
    kinds = flagged & layout.KIND_MASK
    if not bool(layout.IS_KNOWN[kinds].all()):
        raise ValueError("an event's kind is unknown")
    failed = (flagged & layout.FAILED) != 0
    births = layout.IS_BIRTH[kinds]
    made = births & ~failed
    count = kinds.size
    sizes = _spread(count, births, varints.decode(columns[1]), "sizes")
    aligns = _spread(count, layout.IS_ALIGNED[kinds], np.frombuffer(columns[2], dtype=np.uint8), "alignments", 0)
    if bool((aligns > layout.MOST_ALIGN_LOG2).any()) or bool(((sizes < -1) | (sizes >= layout.SIZES_END)).any()):
        raise ValueError("a size or an alignment is impossible")
    numbers = head.first_birth + np.cumsum(made) - made  # of births so far, at each event
    own = np.where(made, numbers, -1)
    deltas = _spread(count, (flagged & layout.TIMED) != 0, varints.decode(columns[4]), "times", 0)
    times = head.first_time + np.cumsum(deltas)
    if count and (int(times[-1]) != head.last_time or bool((deltas < 0).any())):
        raise ValueError("its times do not add up")
    extras = _spread(count, layout.HAS_EXTRA[kinds], varints.decode(columns[5]), "extras")
    threads, objects = _decode_references(flagged, kinds, numbers, head.thread, varints.decode(columns[3]))
    return Events(
        head.process, head.thread, kinds, failed, times, sizes, aligns.astype(np.uint8), own, threads, objects, extras
    )  # fmt: skip


def _decode_references(flagged: Array, kinds: Array, numbers: Array, thread: int, values: Array) -> tuple[Array, Array]:
    refers = np.flatnonzero(layout.HAS_REFERENCE[kinds])
    foreign = (flagged[refers] & layout.FOREIGN) != 0
    lengths = 1 + foreign
    if int(lengths.sum()) != values.size:
        raise ValueError(f"{values.size} references for {refers.size} events")
    starts = np.cumsum(lengths) - lengths
    threads = np.full(kinds.size, -1, dtype=np.int64)
    births = np.full(kinds.size, -1, dtype=np.int64)
    own = refers[~foreign]
    threads[own] = thread
    births[own] = numbers[own] - 1 - values[starts[~foreign]].astype(np.int64)
    other = refers[foreign]
    threads[other] = values[starts[foreign]].astype(np.int64)
    births[other] = np.cumsum(varints.unzigzag(values[starts[foreign] + 1]))
    if bool((births[refers] < 0).any()) or bool((threads[refers] < 0).any()):
        raise ValueError("a reference names an object before the first")
    return threads, births


def _curve(payload: bytes, head: BlockHead) -> Curve:
    values = varints.decode(payload)
    if values.size != 3 * head.events:
        raise ValueError("a curve has another number of points than it says")
    triples = values.reshape(-1, 3).astype(np.int64)
    return Curve(head.first_time + np.cumsum(triples[:, 0]), triples[:, 1], triples[:, 2])


def _stacks(payload: bytes, thread: int) -> list[Stack]:
    values = [int(v) for v in varints.decode(payload)]
    found = []
    at = 0
    while at < len(values):
        if at + 2 > len(values) or at + 2 + values[at + 1] > len(values):
            raise ValueError("a stack is cut")
        frames = values[at + 2 : at + 2 + values[at + 1]]
        found.append((thread, values[at], frames))
        at += 2 + len(frames)
    return found


def _text(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except RecursionError as error:
        raise ValueError("its text is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError("its text is no JSON object")
    return found


def read(path: Path, *, partial: bool = False) -> Trace:
    """The whole trace. With `partial`, a trace that was cut short is read as far as it goes, and `cut` says so."""
    file = File(path)
    trace = Trace(str(path), file.step_ns, file.started_unix_ns)
    parts: dict[int, list[Events]] = {}
    curves: dict[int, list[Curve]] = {}
    try:
        for head in file.blocks():
            try:
                _take(trace, file, head, parts, curves)
            except TraceError:
                raise
            except (ValueError, IndexError, OverflowError) as error:
                raise file.error(head.offset, f"a block is wrong: {error}") from error
    except TraceError as error:
        if not partial:
            raise
        trace.cut = str(error)
    trace.threads = {thread: concatenate(found) for thread, found in sorted(parts.items())}
    for process, found in curves.items():
        trace.curves[process] = Curve(
            *(np.concatenate([getattr(c, n) for c in found]) for n in ("times", "resident", "anonymous"))
        )
    _check_threads(trace)
    return trace


def _take(
    trace: Trace, file: File, head: BlockHead, parts: dict[int, list[Events]], curves: dict[int, list[Curve]]
) -> None:
    if head.type == BlockType.EVENTS:
        parts.setdefault(head.thread, []).append(file.events(head))
    elif head.type == BlockType.SAMPLES:
        curves.setdefault(head.process, []).append(_curve(file.payload(head), head))
    elif head.type == BlockType.GAP:
        file.payload(head)
        thread = None if head.thread == layout.ALL else head.thread
        trace.gaps.append(Gap(thread, head.first_time, head.last_time))
    elif head.type == BlockType.STACKS:
        trace.stacks.setdefault(head.process, []).extend(_stacks(file.payload(head), head.thread))
    elif head.type == BlockType.META:
        trace.meta.update(_text(file.payload(head)))
    elif head.type == BlockType.SUMMARY:
        trace.summary.update(_text(file.payload(head)))
    else:
        raise file.error(
            head.offset, f"a block's type is {head.type}; this reader knows {[t.value for t in BlockType]}"
        )


def _check_threads(trace: Trace) -> None:
    """Each thread's births are numbered without a hole, and each object that is named exists and ends once.

    Where the end of a recording was cut off, by `--max-bytes`, by a full disk or with the file, an event may name an
    object whose birth is among what was lost: such events are left out.
    """
    made = {}
    for number, events in trace.threads.items():
        births = events.births[events.births >= 0]
        if births.size and not bool((births == births[0] + np.arange(births.size)).all()):
            raise TraceError(f"{trace.path}: thread {number}: its births are not numbered in order")
        made[number] = int(births[-1]) + 1 if births.size else 0
    incomplete = bool(trace.cut) or trace.summary.get("end", CUT_OFF[0]) in CUT_OFF
    for number, events in trace.threads.items():
        makers, which = np.unique(events.ref_threads, return_inverse=True)
        most = np.array([made.get(maker, 0) for maker in makers.tolist()], dtype=np.int64)
        dangling = (events.ref_threads >= 0) & (events.ref_births >= most[which])
        if not bool(dangling.any()):
            continue
        if not incomplete:
            raise TraceError(f"{trace.path}: thread {number} ends or touches an object that was never made")
        trace.threads[number] = events.part(~(dangling & (events.births < 0)))
    _check_deaths(trace)


def _check_deaths(trace: Trace) -> None:
    parts: dict[int, list[Array]] = {}
    processes = {events.process for events in trace.threads.values()}
    for process in processes:  # a forked child ends its own copy of what it inherited
        parts.clear()
        for events in trace.threads.values():
            if events.process != process:
                continue
            dies = layout.IS_DEATH[events.kinds] & ~events.failed
            for maker in np.unique(events.ref_threads[dies]):
                chosen = events.ref_births[dies & (events.ref_threads == maker)]
                parts.setdefault(int(maker), []).append(chosen)
        for maker, lists in parts.items():
            deaths = np.concatenate(lists)
            if np.unique(deaths).size != deaths.size:
                raise TraceError(f"{trace.path}: an object of thread {maker} ends twice")
