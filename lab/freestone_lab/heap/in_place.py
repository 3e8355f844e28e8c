"""The figures of a process from the counters in its memory (allocator/src/report/places.cc). The process need not run.

Each figure is what report/statistics.cc makes of the same counters. While the process works, the figures of one look
may belong to slightly different instants.
"""

import os
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.heap import names
from freestone_lab.heap.snapshot import SizeClass, Snapshot, Thread, now_ms

UNIT = 16 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")
LISTED = 64
WORDS = {1: "B", 4: "I", 8: "Q"}
PLACES = (
    "numbers", "version", "classes", "account", "traffic", "purge", "worked", "kept", "blocks_out", "slab_units",
    "empty", "spans", "guarding", "calls", "tables", "metadata", "guards", "class_runs", "runs", "mappings", "heaps",
    "transfer", "sampled", "reclaim", "pressure",
)  # fmt: skip
NUMBERS = (
    "classes", "last_slab", "info", "row", "shards", "may_guard", "cache", "top", "base", "run", "worker", "thread",
    "capacity", "refills", "counting", "counted", "counted_end", "counted_bytes", "batches", "queues", "queue", "held",
)  # fmt: skip
CALLS = ("mmap", "munmap", "mprotect", "madvise", "mremap", "futex", "other")
ACCOUNT = ("charged_bytes", "peak_bytes", "limit_soft_bytes", "limit_hard_bytes", "soft_limit_crossings")
BACK = [f"purged_{why}_bytes" for why in ("surplus", "decay", "slabs", "trim", "shortage", "hardening")]
CAME = ("taken_fresh_bytes", "taken_again_bytes", "populated_bytes", "mapped_total_bytes")


class Counters:
    """What the counters of a process say. `read` gives so many bytes at an address, `caches` where caches lie."""

    def __init__(self, read: Callable[[int, int], bytes], places: int, caches: Iterable[int]) -> None:
        self.read = read
        self.at = dict(zip(PLACES, self.words(places, len(PLACES)), strict=True))
        self.n = dict(zip(NUMBERS, self.words(self.at["numbers"], len(NUMBERS), 4), strict=True))
        self.sizes = [self.words(self.at["classes"] + c * self.n["info"], 1, 4)[0] for c in range(self.n["classes"])]
        self.cached: Counter[int] = Counter()
        self.threads: list[Thread] = []
        self.held: list[int] = []  # the runs that threads keep
        for cache in caches:
            self._look_into(cache)
        self._count_transfer()

    def words(self, place: int, count: int = 1, width: int = 8) -> tuple[int, ...]:
        return struct.unpack(f"={count}{WORDS[width]}", self.read(place, count * width))

    def listed(self, name: str, count: int, width: int = 8) -> list[int]:
        """The counters at the places that a file of the library lists."""
        return [self.words(place, 1, width)[0] for place in self.words(self.at[name], count)]

    def _look_into(self, cache: int) -> None:
        n, data = self.n, self.read(cache, self.n["cache"])

        def word(name: str, k: int = 0, width: int = 8, row: int = 8, of: bytes = data) -> int:
            at = (n[name] if name else 0) + row * k
            return int.from_bytes(of[at : at + width], sys.byteorder)

        counting, total = word("counting"), 0
        borders = self.read(counting, n["counted_end"] * n["counted_bytes"]) if counting else b""
        for c in range(1, n["classes"]):
            base, top, border = word("base", c), word("top", c), word("", c, 8, n["counted_bytes"], borders)
            popped, border = (word("top", n["counted"] + c), border) if border else (top, top)
            if base <= popped <= border <= top:  # else the owner is at work
                self.cached[c] += (popped - base + top - border) // 8
                total += (popped - base + top - border) // 8 * self.sizes[c]
            if n["queues"] and c <= n["last_slab"] and (queue := word("queues", c, 8, n["queue"])):
                self.cached[c] += max(0, word("batches", c) - queue) // 8 + word("held", c, 4, n["queue"])
        self.held += [word("run", 0, 4)] if word("run", 0, 4) else []
        if word("worker"):
            self.threads.append(Thread(word("thread", 0, 4), total, word("capacity"), word("refills")))

    def _count_transfer(self) -> None:
        used, next_used, count, next_count = self.words(self.at["transfer"], 4)
        for shift in range(0, self.n["shards"] * (next_used - used), next_used - used):
            for c in range(1, self.n["last_slab"] + 1) if self.words(used + shift, 1, 4)[0] else ():
                self.cached[c] += self.words(count + shift + c * (next_count - count), 1, 4)[0]

    def heap_objects(self) -> list[tuple[int, ...]]:
        """Of each its spans, live bytes and live blocks."""
        first, layout = self.words(self.at["heaps"], 2)
        own, next_at, counts_at = self.words(layout, 3, 4)
        found, (heap,) = [], self.words(first)
        while heap:
            spans, *live = self.words(heap + counts_at, 3)
            found.append((spans - own, *live))
            (heap,) = self.words(heap + next_at)
        return found


def _resident(pid: int, start: int, length: int) -> int:
    """Of so many bytes, those that are in memory; all, where the kernel does not say."""
    try:
        with Path(f"/proc/{pid}/pagemap").open("rb") as file:
            file.seek(start // PAGE * 8)
            return PAGE * sum(entry >> 63 for entry in memoryview(file.read(length // PAGE * 8)).cast("Q"))
    except OSError:
        return length


def snapshot(pid: int, counters: Counters) -> Snapshot:
    """UserError if the library serves nothing there."""
    c, n, at, words, listed = counters, counters.n, counters.at, counters.words, counters.listed
    account = [0 if value == 2**64 - 1 else value for value in words(at["account"], 5)]
    f = Counter[str](dict(zip(ACCOUNT, account, strict=True)))
    if f["charged_bytes"] == 0:
        raise UserError(f"process {pid} took no memory by libfreestone: it is switched off (FREESTONE_DISABLE), or new")
    f["peak_bytes"] = max(account[:2])
    slabs_end, guards = n["last_slab"] + 1, n["may_guard"] * words(at["guarding"], 1, 1)[0] != 0
    rows = [words(at["blocks_out"] + shard * n["row"], slabs_end) for shard in range(n["shards"])]
    outside = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    outside += words(words(at["class_runs"])[0], n["classes"])[slabs_end:]
    units, empty = words(at["slab_units"], slabs_end, 4), words(at["empty"], slabs_end)
    live: Counter[int] = Counter()
    cached: Counter[int] = Counter()
    for k, size in list(enumerate(c.sizes))[1:]:
        live[size] += outside[k] - min(c.cached[k], outside[k])
        cached[size] += min(c.cached[k], outside[k])
    runs, run_units = listed("runs", 2)
    unbacked = sum(map(min, empty, (UNIT * x for x in units))) + guards * UNIT * (sum(outside[slabs_end:]) + runs)
    blocks, block_bytes, stuck, stuck_bytes, lost, table = listed("mappings", 6)
    *_, first, second = words(at["mappings"], 8)
    entries, capacity = words(table, 2)
    own = stuck_bytes + lost + (entries != first) * -(-capacity * (second - first) // PAGE) * PAGE
    f["mapped_blocks"], f["mapped_bytes"] = blocks - stuck, block_bytes - stuck_bytes
    f["large_blocks"] = max(0, runs - len(c.held))
    f["large_bytes"] = max(0, run_units - sum(c.held)) * UNIT
    f["run_cached_bytes"] = (sum(c.held) + words(at["kept"])[0]) * UNIT
    heaps = c.heap_objects()
    spans, heap_bytes, heap_blocks = map(sum, zip(*heaps, (0, 0, 0), strict=True))
    f["heap_objects"], f["heap_object_bytes"] = len(heaps), spans
    sampled_blocks, sampled_bytes, closed = listed("sampled", 3)
    apart = f["large_bytes"] + heap_bytes + sampled_bytes
    f["live_bytes"] = sum(size * count for size, count in live.items()) + f["mapped_bytes"] + apart
    f["live_blocks"] = live.total() + f["mapped_blocks"] + f["large_blocks"] + heap_blocks + sampled_blocks
    f["thread_cached_bytes"] = sum(size * count for size, count in cached.items())
    tag_bytes, start, table_bytes, base = listed("tables", 4)
    heap_start, window_end, frontier, skipped = (words(p, 1, 4)[0] for p in words(at["tables"], 8)[4:])
    f["committed_bytes"] = (frontier - heap_start - skipped) * UNIT
    free, waiting, *dirty = words(at["spans"], 5)
    f["dirty_bytes"] = sum(dirty) * UNIT
    f["clean_bytes"] = (free + waiting) * UNIT - f["dirty_bytes"]
    used = f["committed_bytes"] - (free + waiting) * UNIT
    taken = sum(map(int.__mul__, outside, c.sizes)) + apart + f["run_cached_bytes"]
    f["slab_free_bytes"] = max(0, used - taken)
    f["unbacked_bytes"] = min(unbacked + closed, f["slab_free_bytes"])
    mapped, carved = listed("metadata", 2)
    f["metadata_bytes"] = table_bytes + tag_bytes + mapped + own
    in_memory = _resident(pid, start, table_bytes) + _resident(pid, base, tag_bytes)
    f["metadata_resident_bytes"] = in_memory + carved + own
    reserved = words(words(at["tables"], 9)[8], 1, 1)[0]
    f["reserved_bytes"] = f["mapped_bytes"] + ((window_end - heap_start) * UNIT if reserved else f["committed_bytes"])
    for figure, key in (("resident_bytes", "VmRSS"), ("peak_resident_bytes", "VmHWM")):
        f[figure] = 1024 * int((names.status(pid, key) or ["0"])[0])
    traffic = words(at["traffic"], 18)
    f["purged_bytes"], f["unmapped_bytes"], f["purge_calls"] = sum(traffic[:6]), traffic[6], sum(traffic[7:13])
    f.update(dict(zip((*BACK, *CAME), traffic[:6] + traffic[14:], strict=True)))
    f["purge_cost_ns"], f["worked_ms"] = words(at["purge"], 3)[2], words(at["worked"])[0]
    f["reclaims"], f["failed_allocations"], f["pressure_reactions"] = listed("reclaim", 2) + listed("pressure", 1)
    f["guard_mappings"], f["guard_mappings_max"] = listed("guards", 2)
    f["threads"] = len(c.threads)
    unused = max(0, f["charged_bytes"] - f["live_bytes"]) * 1000 // f["charged_bytes"] / 1000
    version, build = c.read(at["version"], 32).split(b"\0")[0].decode().split(" ", 1)
    return Snapshot(
        *(pid, names.command_line(pid), version, build, now_ms(), {**f, "fragmentation": unused}),
        dict(zip(CALLS, words(words(at["calls"])[0], len(CALLS)), strict=True)),
        tuple(SizeClass(size, live[size], cached[size]) for size in sorted(live) if live[size] + cached[size]),
        tuple(c.threads[:LISTED]),
    )
