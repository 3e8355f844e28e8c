"""A trace in memory: the calls of each thread as columns, and what was recorded beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Stack = tuple[int, int, list[int]]  # thread, birth, frames from the innermost


class TraceError(ValueError):
    """A trace that cannot be read; the message names the file, the place and what is wrong."""


@dataclass
class Events:
    """Calls of one thread in its order. An object's name is its maker's thread and its number among that one's births.

    `births` numbers the event's own birth, or -1; `ref_threads` and `ref_births` name what it ends or touches, or -1.
    """

    process: int
    thread: int
    kinds: Array  # uint8, without flags
    failed: Array  # bool
    times: Array  # int64, steps
    sizes: Array  # int64, -1 where there is none
    aligns: Array  # uint8: binary logarithm, 0 where there is none
    births: Array  # int64
    ref_threads: Array  # int64
    ref_births: Array  # int64
    extras: Array  # int64, -1 where there is none

    def __len__(self) -> int:
        return int(self.kinds.size)

    def part(self, chosen: Any) -> Events:
        """The events that a slice or a mask chooses."""
        arrays = {name: getattr(self, name)[chosen] for name in EVENT_ARRAYS}
        return Events(self.process, self.thread, **arrays)


EVENT_ARRAYS = (
    "kinds", "failed", "times", "sizes", "aligns", "births", "ref_threads", "ref_births", "extras",
)  # fmt: skip


def concatenate(parts: list[Events]) -> Events:
    """The events of one thread's blocks as one."""
    arrays = {name: np.concatenate([getattr(p, name) for p in parts]) for name in EVENT_ARRAYS}
    return Events(parts[0].process, parts[0].thread, **arrays)


@dataclass(frozen=True)
class Gap:
    """Between two times nothing was recorded: of one thread, or of all (None)."""

    thread: int | None
    first_time: int
    last_time: int


@dataclass
class Curve:
    """Resident memory of one process over time, in KiB; `anonymous` is the part that no file backs."""

    times: Array
    resident: Array
    anonymous: Array


@dataclass
class Trace:
    """A whole trace in memory. `threads` holds one Events per thread, by number."""

    path: str
    step_ns: int
    started_unix_ns: int
    meta: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    threads: dict[int, Events] = field(default_factory=dict)
    curves: dict[int, Curve] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    stacks: dict[int, list[tuple[int, int, list[int]]]] = field(
        default_factory=dict
    )  # process: (thread, birth, frames)
    cut: str = ""  # what is missing at the end, when that was allowed

    @property
    def events(self) -> int:
        return sum(len(t) for t in self.threads.values())

    @property
    def duration_s(self) -> float:
        last = max((int(t.times[-1]) for t in self.threads.values() if len(t)), default=0)
        return last * self.step_ns / 1e9
