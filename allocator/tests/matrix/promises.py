"""What a test may miss under an axis, and why. Whatever no row excuses must hold under every axis.

`missed`: cases may fail, because what they measure cannot be had; a death, a hang or damage is no excuse.
`void`: the case proves nothing there.
`open`: a defect that is not fixed yet. A row that no cell needs any more is a finding of the whole matrix.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from matrix.axes import Axis


class Kind(enum.Enum):
    MISSED = "missed"
    VOID = "void"
    OPEN = "open"


@dataclass(frozen=True)
class Row:
    """Patterns as in a shell, several with spaces between them."""

    kind: Kind
    axes: str
    tests: str
    cases: str
    reason: str

    def excuses(self, axis: Axis, test: str, case: str, hurt: bool) -> bool:
        return (
            not (hurt and self.kind is Kind.MISSED)
            and _any(self.axes, axis.name)
            and _any(self.tests, test)
            and _any(self.cases, case)
        )


def _any(patterns: str, text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns.split())


def row_for(axis: Axis, test: str, case: str, hurt: bool) -> Row | None:
    return next((row for row in ROWS if row.excuses(axis, test, case, hurt)), None)


# Tests that are no part of the matrix, although a library is named in their environment.
LEFT_OUT = {
    "abi.exports.*": "reads the library's file",
    "fault.calls.*": "judges the table of calls in peace",
    "fault.filters.*": "kills for calls itself, for those of the stand-in, too",
    "preload.surface.*": "compares the names that are exported, and the stand-in exports one of its own",
    "preload.interposed.*": "interposes what the stand-in calls",
    "sampling.unchanged.*": "compares the shipped library's instructions",
    "sampling.sampling_cost.*": "counts the shipped library's instructions",
    "sampling.estimates.*": "judges the statistics of samples, by minutes of them",
    "footprint.startup*": "counts the pages of the library's file",
}

MISSED, VOID, OPEN = Kind.MISSED, Kind.VOID, Kind.OPEN
OUT = "memory.* mappings.* window.* options.limit_hard:1 options.limit_hard:24m"
ROWS = (
    Row(MISSED, OUT, "*", "*", "the program wants memory that is not there"),
    Row(
        VOID,
        "open_to_read.KILL",
        "fault.*_profiled.* sampling.*",
        "*",
        "profiles read what is mapped where, as the table of calls says: who confines a program to no file has none",
    ),
    Row(
        MISSED,
        "page.*",
        "sampling.guard.*",
        "test_underflow",
        "the slack before a block is the longer, the larger a page is: what is written there is seen at the free",
    ),
    Row(
        MISSED,
        "page.64k",
        "abi.bad_pointer*",
        "ShrunkLargeBlock.* GrownLargeBlock.*",
        "a page is larger than a unit, so runs have no guards",
    ),
    Row(
        OPEN,
        "page.*",
        "api.statistics.* api.mallctl.*",
        "GoodSize.* Statistics.AgreeWithAShadowCountAtRest Mallctl.StatisticsFollowTheHeapAtEachEpoch",
        "amounts differ from what is promised where pages are larger than 4 KiB",
    ),
    Row(
        MISSED,
        "mmap_at.* all.*",
        "fault.address_space* fault.rlimit.* footprint.mappings.*",
        "AddressSpace.* *address_space* *small_program*",
        "the window is reserved as a whole, which counts as address space",
    ),
    Row(
        MISSED,
        "munmap.* all.*",
        "abi.cxx_operators.*",
        "NewHandler.ThatFreesMemoryLetsTheAllocationSucceed",
        "no mapping gives memory back",
    ),
    Row(
        MISSED,
        "madvise.* madvise_dontneed.* all.* page.*",
        "api.* footprint.* stress.* fault.refused_purge*",
        "*LockedPage* Unlocked.* *GoBackTogether *CountSystemCallsAndPurges Limits.* *ThePeakStaysBelowTheLimit* "
        "*DestroyReturns* "
        "*PurgesAsRedisDoes *WhatIsKeptMayChange* *MakeRoomForALargeOne *SealedWhileTheStockLasts* Memory.* Regrowth.*",
        "memory that the kernel does not take back stays",
    ),
    Row(
        MISSED,
        "madvise.* mremap.half all.*",
        "abi.bad_pointer.hardened sampling.guard.*",
        "MappedBlock.* ShrunkLargeBlock.* GrownLargeBlock.* *",
        "nothing faults without guards",
    ),
    Row(
        VOID,
        "options.map_bytes:1m",
        "abi.memory_calls.hardened",
        "Sizes/MemoryCalls.*",
        "these sizes become mappings of their own, which are unmapped when freed and whose middle nobody knows",
    ),
    Row(
        MISSED,
        "options.cache_bytes:0",
        "abi.misuse_line.* api.walk.* api.mallctl.*",
        "*",
        "what a cache remembers or holds cannot be seen without caches",
    ),
    Row(
        MISSED,
        "options.dirty_* options.stats_interval* options.background* options.guard_sample* options.prof:* "
        "options.leak* options.limit_soft* options.live_page* options.pressure* options.thp*",
        "api.* footprint.* abi.options.* abi.mallinfo.* fault.refusal.* fault.address_space* sampling.*",
        "*",
        "the option changes what the test counts",
    ),
)


def unused(needed: Iterable[Row]) -> list[Row]:
    """Open rows that no cell needed."""
    used = set(needed)
    return [row for row in ROWS if row.kind is Kind.OPEN and row not in used]
