"""What faster calls and fewer page faults could win at most, of a program's CPU time and of its time, and malloc's part
of its memory. Where blocks lie, and so how well caches hold them, is not in it.

One run of the program under glibc with timed.c preloaded, which reads the counter around each call.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freestone_lab.measure import native

VARIABLE = "FREESTONE_TIMED"
FAULT_S = 1e-6  # of a page fault; 0.1 to 0.7 on machines that were tried
LEAST_PART = 0.01  # less is not worth measuring
LEAST_HEAP_KIB = 4096  # a smaller heap mostly lies in caches, wherever its blocks are
RESTS = 0.02  # a program whose CPU time is a smaller part of its time waits, whatever else the machine does
LEAST_REST_S = 1.0  # a run whose time is shorter may have waited for a processor


@dataclass(frozen=True)
class Share:
    """Times of all processes; memory of the one with the most of malloc's."""

    malloc_s: float
    faults_s: float  # page faults, each taken for a dear one
    cpu_s: float
    heap_kib: float
    rss_kib: float
    wall_s: float = 0.0  # unknown in results of former versions

    def part(self, seconds: float) -> float:
        return min(1.0, seconds / self.cpu_s) if self.cpu_s > 0 else 0.0

    @property
    def bound(self) -> float:
        """The part of the CPU time that faster calls and fewer page faults could save."""
        return self.part(self.malloc_s + self.faults_s)

    @property
    def time_bound(self) -> float:
        """The part of the time that they could save, if nothing ran beside them."""
        return min(1.0, (self.malloc_s + self.faults_s) / self.wall_s) if self.wall_s else 1.0

    @property
    def nothing_to_win(self) -> bool:
        """Neither CPU time, nor time, nor memory, nor by where blocks lie."""
        rests = self.wall_s >= LEAST_REST_S and self.cpu_s < RESTS * self.wall_s
        return self.heap_kib < LEAST_HEAP_KIB and self.time_bound < LEAST_PART and (self.bound < LEAST_PART or rests)

    def words(self) -> str:
        parts = (self.part(self.malloc_s), self.part(self.faults_s), self.bound, self.time_bound)
        malloc, faults, bound, time = (f"{100 * part:.2g} %" for part in parts)
        takes = f"malloc takes {malloc} of the CPU time, page faults {faults}"
        win = f"at most {bound} of it and {time} of the time to win; where blocks lie in caches is not in it"
        return f"{takes}: {win}; {self.heap_kib / 1024:.3g} of {self.rss_kib / 1024:.3g} MiB are malloc's"


def library() -> Path:
    return native.tool("timed")


def lines(said: Path) -> list[dict[str, Any]]:
    """What each process said of itself at its end."""
    try:
        return [json.loads(line) for line in said.read_text().splitlines()]
    except (OSError, ValueError):
        return []


def read(said: Path, wall_s: float) -> Share | None:
    """Of a run that took `wall_s`; None where no process said anything."""
    found = lines(said)
    if not found:
        return None
    largest = max(found, key=lambda one: float(one["peak_kib"]))
    malloc, faults, cpu = (sum(float(one[name]) for one in found) for name in ("seconds", "faults", "cpu_s"))
    heap, rss = max(0.0, float(largest["peak_kib"])), float(largest["rss_kib"])
    return Share(malloc, faults * FAULT_S, cpu, heap, rss, wall_s)
