"""The figures of a process from the counters in its memory (allocator/src/report/places.cc). The process need not run.

Each figure is what report/statistics.cc makes of the same counters. While the process works, the figures of one look
may belong to slightly different instants.
"""

from __future__ import annotations

import os
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.heap import names
from freestone_lab.heap.snapshot import SizeClass, Snapshot, Thread, now_ms

Read = Callable[[int, int], bytes]  # so many bytes at this address
UNIT = 16 * 1024
PLACES = (
    "numbers", "version", "classes", "account", "traffic", "purge", "worked", "kept", "blocks_out", "slab_units",
    "empty", "spans", "guarding", "calls", "tables", "metadata", "guards", "class_runs", "runs", "mappings",
    "heaps", "transfer", "sampled", "reclaim", "pressure",
)  # fmt: skip
NUMBERS = (
    "classes", "last_slab", "info", "row", "shards", "may_guard", "cache", "top", "base", "run", "worker", "thread",
    "capacity", "refills", "counting", "counted", "counted_end", "counted_bytes", "batches", "queues", "queue", "held",
)  # fmt: skip
CALLS = ("mmap", "munmap", "mprotect", "madvise", "mremap", "futex", "other")
BACK = ("surplus", "decay", "slabs", "trim", "shortage", "hardening")
CAME = ("taken_fresh_bytes", "taken_again_bytes", "populated_bytes", "mapped_total_bytes")
LISTED = 64
NO_LIMIT = 2**64 - 1


class Counters:
    """Reads the counters of one process."""

    def __init__(self, read: Read, places: int) -> None:
        self.read = read
        self.at = dict(zip(PLACES, self.words(places, len(PLACES)), strict=True))
        self.n = dict(zip(NUMBERS, self.words(self.at["numbers"], len(NUMBERS), 4), strict=True))

    def words(self, place: int, count: int = 1, width: int = 8) -> tuple[int, ...]:
        return struct.unpack(f"={count}{'Q' if width == 8 else 'I'}", self.read(place, count * width))

    def listed(self, name: str, count: int) -> tuple[int, ...]:
        """The places that a file of the library lists."""
        return self.words(self.at[name], count)

    def of(self, name: str, count: int) -> tuple[int, ...]:
        """The counters at the places that a file of the library lists, each a word."""
        return tuple(self.words(place)[0] for place in self.listed(name, count))

    def resident(self, pagemap: Path, start: int, length: int) -> int:
        """Of so many bytes of memory, those that are there; all, where the kernel does not say."""
        page = os.sysconf("SC_PAGE_SIZE")
        try:
            with pagemap.open("rb") as file:
                file.seek(start // page * 8)
                entries = memoryview(file.read(length // page * 8)).cast("Q")
        except OSError:
            return length
        return page * sum(entry >> 63 for entry in entries)


class Cached:
    """What the caches hold: blocks by class, runs, threads."""

    def __init__(self, counters: Counters, caches: Iterable[int], sizes: list[int]) -> None:
        self.blocks: Counter[int] = Counter()
        self.runs = self.run_bytes = 0
        self.threads: list[Thread] = []
        n = counters.n

        def word(data: bytes, at: int, width: int = 8) -> int:
            return int.from_bytes(data[at : at + width], sys.byteorder)

        for place in caches:
            data = counters.read(place, n["cache"])
            counting, borders = word(data, n["counting"]), b""
            if counting:
                borders = counters.read(counting, n["counted_end"] * n["counted_bytes"])
            thread_bytes = 0
            for c in range(1, n["classes"]):
                top, base = word(data, n["top"] + 8 * c), word(data, n["base"] + 8 * c)
                border = word(borders, n["counted_bytes"] * c)
                popped = word(data, n["top"] + 8 * (n["counted"] + c)) if border else top
                count = (popped - base + top - (border or top)) // 8
                if base <= popped <= (border or top) <= top and count * sizes[c] < 2**40:  # the owner may be at work
                    self.blocks[c] += count
                    thread_bytes += count * sizes[c]
                if n["queues"] and c <= n["last_slab"]:
                    queue = n["queues"] + n["queue"] * c
                    batch = word(data, n["batches"] + 8 * c) - word(data, queue)
                    self.blocks[c] += (
                        (word(data, queue + n["held"], 4) + max(0, batch // 8)) if word(data, queue) else 0
                    )
            units = word(data, n["run"], 4)
            self.runs += units != 0
            self.run_bytes += units * UNIT
            if word(data, n["worker"]):
                fields = word(data, n["thread"], 4), thread_bytes, word(data, n["capacity"]), word(data, n["refills"])
                self.threads.append(Thread(*fields))
        used, next_used, count, next_count = counters.listed("transfer", 4)
        for shard in range(n["shards"]):
            if counters.words(used + shard * (next_used - used), 1, 4) != (0,):
                for c in range(1, n["last_slab"] + 1):
                    at = count + shard * (next_used - used) + c * (next_count - count)
                    self.blocks[c] += counters.words(at, 1, 4)[0]


def snapshot(pid: int, read: Read, places: int, caches: Iterable[int]) -> Snapshot:
    """UserError if the library serves nothing there."""
    counters = Counters(read, places)
    n, at = counters.n, counters.at
    ends, slabs_end = n["classes"], n["last_slab"] + 1
    infos = [struct.unpack_from("=3I", read(at["classes"] + c * n["info"], 12)) for c in range(ends)]
    cached = Cached(counters, caches, [info[0] for info in infos])
    f: Counter[str] = Counter()
    charged, f["peak_bytes"], soft, hard, f["soft_limit_crossings"] = counters.words(at["account"], 5)
    if charged == 0:
        raise UserError(f"process {pid} took no memory by libfreestone: it is switched off (FREESTONE_DISABLE), or new")
    f["charged_bytes"], f["peak_bytes"] = charged, max(charged, f["peak_bytes"])
    f["limit_soft_bytes"], f["limit_hard_bytes"] = (0 if x == NO_LIMIT else x for x in (soft, hard))
    outside = [
        sum(column) % 2**64
        for column in zip(
            *(counters.words(at["blocks_out"] + s * n["row"], slabs_end) for s in range(n["shards"])), strict=True
        )
    ]
    outside += counters.words(counters.listed("class_runs", 1)[0], ends)[slabs_end:]
    slab_units = counters.words(at["slab_units"], slabs_end, 4)
    empty = counters.words(at["empty"], slabs_end)
    guards = n["may_guard"] != 0 and read(at["guarding"], 1) != b"\0"
    rows: dict[int, list[int]] = {}
    outside_bytes = unbacked = 0
    for c in range(1, ends):
        size = infos[c][0]
        kept = min(cached.blocks[c], outside[c])
        row = rows.setdefault(size, [0, 0])
        row[0] += outside[c] - kept
        row[1] += kept
        f["live_blocks"] += outside[c] - kept
        f["live_bytes"] += (outside[c] - kept) * size
        f["thread_cached_bytes"] += kept * size
        outside_bytes += outside[c] * size
        if c < slabs_end:
            unbacked += min(empty[c], slab_units[c] * UNIT)
        elif guards:
            unbacked += outside[c] * UNIT
    f["heap_objects"] = f["heap_object_bytes"] = 0
    live, live_bytes, stuck, stuck_bytes, lost = counters.of("mappings", 5)
    table, first, second = counters.listed("mappings", 8)[5:]
    entries, capacity = counters.words(counters.words(table)[0], 2)
    page = os.sysconf("SC_PAGE_SIZE")
    own = stuck_bytes + lost + (0 if entries == first else -(-capacity * (second - first) // page) * page)
    f["mapped_blocks"], f["mapped_bytes"] = live - stuck, live_bytes - stuck_bytes
    runs, run_units = counters.of("runs", 2)
    unbacked += runs * UNIT if guards else 0
    f["large_blocks"], f["large_bytes"] = max(0, runs - cached.runs), max(0, run_units * UNIT - cached.run_bytes)
    f["run_cached_bytes"] = cached.run_bytes + counters.words(at["kept"])[0] * UNIT
    heap, layout = counters.listed("heaps", 2)
    heap_bytes, next_at, counts_at = counters.words(layout, 3, 4)
    heap_live = 0
    heap = counters.words(heap)[0]
    while heap:
        spans, its_live, its_blocks = counters.words(heap + counts_at, 3)
        f["heap_objects"] += 1
        f["heap_object_bytes"] += spans - heap_bytes
        heap_live += its_live
        f["live_blocks"] += its_blocks
        heap = counters.words(heap + next_at)[0]
    sampled_blocks, sampled_bytes, closed = counters.of("sampled", 3)
    f["live_bytes"] += f["mapped_bytes"] + f["large_bytes"] + heap_live + sampled_bytes
    f["live_blocks"] += f["mapped_blocks"] + f["large_blocks"] + sampled_blocks
    tables = counters.listed("tables", 9)
    (tag_bytes,), (start,), (table_bytes,), (base,) = (counters.words(place) for place in tables[:4])
    (heap_start,), (window_end,), (frontier,), (skipped,) = (counters.words(place, 1, 4) for place in tables[4:8])
    f["committed_bytes"] = (frontier - heap_start - skipped) * UNIT
    free, waiting, *dirty = counters.words(at["spans"], 5)
    f["dirty_bytes"] = sum(dirty) * UNIT
    f["clean_bytes"] = (free + waiting) * UNIT - f["dirty_bytes"]
    used = f["committed_bytes"] - (free + waiting) * UNIT
    taken = outside_bytes + f["large_bytes"] + f["run_cached_bytes"] + heap_live + sampled_bytes
    f["slab_free_bytes"] = max(0, used - taken)
    f["unbacked_bytes"] = min(unbacked + closed, f["slab_free_bytes"])
    mapped, carved = counters.of("metadata", 2)
    f["metadata_bytes"] = table_bytes + tag_bytes + mapped + own
    pagemap = Path(f"/proc/{pid}/pagemap")
    in_memory = counters.resident(pagemap, start, table_bytes) + counters.resident(pagemap, base, tag_bytes)
    f["metadata_resident_bytes"] = in_memory + carved + own
    reserved = (window_end - heap_start) * UNIT if read(tables[8], 1) != b"\0" else f["committed_bytes"]
    f["reserved_bytes"] = reserved + f["mapped_bytes"]
    f["resident_bytes"], f["peak_resident_bytes"] = (
        1024 * int((names.status(pid, key) or ["0"])[0]) for key in ("VmRSS", "VmHWM")
    )
    traffic = counters.words(at["traffic"], 18)
    f.update({f"purged_{name}_bytes": traffic[k] for k, name in enumerate(BACK)} | {"unmapped_bytes": traffic[6]})
    f["purged_bytes"], f["purge_calls"] = sum(traffic[:6]), sum(traffic[7:13])
    f.update(dict(zip(CAME, traffic[14:], strict=True)))
    f["purge_cost_ns"], f["worked_ms"] = counters.words(at["purge"], 3)[2], counters.words(at["worked"])[0]
    f["reclaims"], f["failed_allocations"] = counters.of("reclaim", 2)
    (f["pressure_reactions"],) = counters.of("pressure", 1)
    f["guard_mappings"], f["guard_mappings_max"] = counters.of("guards", 2)
    f["threads"] = len(cached.threads)
    figures: dict[str, float] = dict(f)
    figures["fragmentation"] = max(0, charged - f["live_bytes"]) * 1000 // charged / 1000
    calls = dict(zip(CALLS, counters.words(counters.listed("calls", 1)[0], len(CALLS)), strict=True))
    version, build = read(at["version"], 32).split(b"\0")[0].decode().split(" ", 1)
    classes = tuple(SizeClass(size, *row) for size, row in sorted(rows.items()) if any(row))
    name, threads = names.command_line(pid), tuple(cached.threads[:LISTED])
    return Snapshot(pid, name, version, build, now_ms(), figures, calls, classes, threads)
