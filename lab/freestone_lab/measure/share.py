"""What an allocator could win at most: malloc's and the kernel's part of a program's CPU time, malloc's of its memory.

One run of the program under glibc with timed.c preloaded, which reads the counter around each call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freestone_lab.measure import native

VARIABLE = "FREESTONE_TIMED"
FAULT_S = 1e-6  # of a page fault; 0.1 to 0.7 on machines that were tried


@dataclass(frozen=True)
class Share:
    """Times of all processes; memory of the one with the most of malloc's."""

    malloc_s: float
    faults_s: float  # page faults, each taken for a dear one
    cpu_s: float
    heap_kib: float
    rss_kib: float

    def part(self, seconds: float) -> float:
        return min(1.0, seconds / self.cpu_s) if self.cpu_s > 0 else 0.0

    @property
    def bound(self) -> float:
        """The part of the CPU time that an allocator could save, but for what its layout does to caches."""
        return self.part(self.malloc_s + self.faults_s)

    def words(self) -> str:
        parts = (self.part(self.malloc_s), self.part(self.faults_s), self.bound)
        malloc, faults, bound = (f"{100 * part:.2g} %" for part in parts)
        win = f"malloc takes {malloc} of the CPU time, page faults {faults}: at most {bound} to win, but for caches"
        return f"{win}; {self.heap_kib / 1024:.3g} of {self.rss_kib / 1024:.3g} MiB are malloc's"


def library() -> Path:
    return native.tool("timed")


def lines(said: Path) -> list[dict[str, Any]]:
    """What each process said of itself at its end."""
    try:
        return [json.loads(line) for line in said.read_text().splitlines()]
    except (OSError, ValueError):
        return []


def read(said: Path) -> Share | None:
    """None where no process said anything."""
    found = lines(said)
    if not found:
        return None
    largest = max(found, key=lambda one: float(one["peak_kib"]))
    malloc, faults, cpu = (sum(float(one[name]) for one in found) for name in ("seconds", "faults", "cpu_s"))
    return Share(malloc, faults * FAULT_S, cpu, max(0.0, float(largest["peak_kib"])), float(largest["rss_kib"]))
