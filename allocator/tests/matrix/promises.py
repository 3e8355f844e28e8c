"""What a test may miss under an axis, and why. Whatever no row excuses must hold under every axis.

`missed`: cases may fail, because what they measure cannot be had; a death, a hang or damage is no excuse.
`void`: the case proves nothing there. A test of which that is said as a whole is not run.
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


def is_void(axis: Axis, test: str) -> bool:
    """Whether no case of the test proves anything there: it need not run."""
    return any(row.kind is Kind.VOID and row.cases == "*" and row.excuses(axis, test, "", True) for row in ROWS)


def row_for(axis: Axis, test: str, case: str, hurt: bool) -> Row | None:
    return next((row for row in ROWS if row.excuses(axis, test, case, hurt)), None)


# Tests that are no part of the matrix, although a library is named in their environment.
LEFT_OUT = {
    "abi.exports.*": "reads the library's file",
    "fault.calls.*": "judges the table of calls in peace",
    "fault.filters.*": "kills for calls itself, for those of the stand-in, too",
    "fault.switches.*": "looks for words that lead to code, and the stand-in has one of its own",
    "preload.surface.*": "compares the names that are exported, and the stand-in exports one of its own",
    "preload.interposed.*": "interposes what the stand-in calls",
    "sampling.unchanged.*": "compares the shipped library's instructions",
    "sampling.sampling_cost.*": "counts the shipped library's instructions",
    "sampling.estimates.*": "judges the statistics of samples, by minutes of them",
    "footprint.startup*": "counts the pages of the library's file",
}

MISSED, OPEN, VOID = Kind.MISSED, Kind.OPEN, Kind.VOID
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
        VOID,
        "open_to_read.KILL open_to_write.KILL lseek.KILL pread64.KILL newfstatat.KILL renameat2.KILL fcntl.KILL "
        "fstat.KILL ftruncate.KILL unlinkat.KILL getdents64.KILL tgkill.KILL prctl.KILL nanosleep.KILL "
        "mmap_shared.KILL",
        "api.* sampling.* stress.small_stack.* preload.late_threads.* abi.options.*",
        "*",
        "the program asks for figures or a report that takes the call, as the table of calls says",
    ),
    Row(
        MISSED,
        "open_to_read.E* open_to_write.E* pread64.E* renameat2.E* newfstatat.E* lseek.E* fstat.E*",
        "api.mallctl.* api.written_statistics.* sampling.* stress.small_stack.* abi.options.* fault.*_profiled*",
        "*",
        "a report needs the files that it reads and writes",
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
        "fault.reuse.*",
        "*",
        "a page is larger than a unit, so slabs share pages, and their addresses are not their class's alone",
    ),
    Row(
        MISSED,
        "all.EPERM madvise.half",
        "fault.reuse.*",
        "Reuse.ARetiredSlab*",
        "a slab whose memory the kernel does not take stays a slab",
    ),
    Row(
        MISSED,
        "all.EPERM madvise_dontneed.*",
        "api.mallctl.*",
        "Mallctl.DecaysPagesInsideSlabs",
        "the kernel takes no page back",
    ),
    Row(
        MISSED,
        "page.64k",
        "abi.bad_pointer*",
        "ShrunkLargeBlock.* GrownLargeBlock.*",
        "a page is larger than a unit, so runs have no guards",
    ),
    Row(
        MISSED,
        "mmap_at.* all.*",
        "fault.address_space* fault.rlimit.* footprint.mappings.* abi.errno.*",
        "AddressSpace.* *address_space* *small_program* test_every_call_answers_as_the_c_library",
        "the window is reserved as a whole, which counts as address space",
    ),
    Row(
        MISSED,
        "munmap.* all.*",
        "abi.cxx_operators.* abi.errno.* footprint.mappings.*",
        "NewHandler.ThatFreesMemoryLetsTheAllocationSucceed test_every_call_answers_as_the_c_library "
        "test_of_own_mappings_has_one_for_each_at_most",
        "no mapping gives memory back",
    ),
    Row(
        MISSED,
        "madvise.half madvise_guard_remove.* all.*",
        "abi.errno.hardened fault.rlimit.hardened",
        "test_every_call_answers_as_the_c_library LateLimit.*",
        "at a limit of addresses a guard that no advice opens stays",
    ),
    Row(
        MISSED,
        "madvise.half",
        "fault.used_up.* footprint.mappings.*",
        "Mappings.AreAsFewInALargeHeapAsInASmallOne test_of_runs_is_as_many_mappings_as_a_small_one",
        "pieces of the heap with and without the advice about huge pages are mappings of their own",
    ),
    Row(
        MISSED,
        "madvise.* all.*",
        "api.statistics.*",
        "*CountNoSystemCallPerBlock*",
        "what is refused is asked for again",
    ),
    Row(
        MISSED,
        "prlimit64.* all.ENOSYS",
        "fault.rlimit.hardened",
        "Limits/UnderLimit.*",
        "a limit that cannot be asked for leaves the guards on, which count",
    ),
    Row(
        VOID,
        "madvise_wipe_on_fork.* all.*",
        "stress.fork_anywhere.* stress.fork_held.* fault.children.*",
        "*",
        "without the page that the kernel wipes, a child of _Fork or clone is not known as one",
    ),
    Row(
        MISSED,
        "madvise.* madvise_dontneed.* all.* page.*",
        "api.* footprint.* stress.* fault.refused_purge* fault.refusal_limited.*",
        "*LockedPage* RefusalUnderLimit.* *TrimGivesBack* Unlocked.* *GoBackTogether *CountSystemCallsAndPurges "
        "Limits.* *ThePeakStaysBelowTheLimit* *DestroyReturns* *PurgesAsRedisDoes *WhatIsKeptMayChange* "
        "*MakeRoomForALargeOne *SealedWhileTheStockLasts* Memory.* Regrowth.*",
        "memory that the kernel does not take back stays",
    ),
    Row(
        MISSED,
        "madvise.* mprotect.* mmap_reserve.* mremap.half all.*",
        "abi.bad_pointer*.hardened fault.enumerated*.hardened sampling.guard.* api.clearing.*",
        "*",
        "where the kernel makes no guards nothing faults behind a block, nor at one of zero bytes",
    ),
    Row(
        VOID,
        "madvise.half",
        "abi.memory_calls.hardened",
        "Sizes/MemoryCalls.TouchNoFreedBlock/*",
        "what is used after its free has become a guard again: it faults, and no message is written",
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
        "api.* footprint.* abi.options.* abi.mallinfo.* abi.errno.* fault.refusal.* fault.address_space* sampling.*",
        "*",
        "the option changes what the test counts",
    ),
    Row(
        VOID,
        "options.prof* options.leak* options.guard_sample*",
        "abi.misuse_line.* abi.bad_pointer*",
        "*",
        "stacks follow the line, and a block that is sampled faults instead",
    ),
    Row(
        VOID,
        "options.guard_sample* options.on_error:report options.check_libc:false",
        "abi.memory_calls.* abi.misuse_line.* abi.bad_pointer* fault.guesses.*",
        "*",
        "the option takes away what the test looks for, or moves the blocks",
    ),
    Row(
        VOID,
        "all.* page.64k memory.* mappings.* options.seal_bytes:1024g",
        "abi.memory_calls.hardened",
        "Sizes/MemoryCalls.TouchNoFreedBlock/*",
        "where a freed block does not fault the call says what is wrong; without memory there is no block",
    ),
    Row(
        VOID,
        "all.* madvise.* mprotect.* memory.* mappings.* window.* page.* options.guard_sample* options.limit_hard* "
        "options.seal_bytes*",
        "abi.options.hardened",
        "test_a_limit_takes_no_guards",
        "the test says where each block faults, which the axis changes",
    ),
    Row(
        VOID,
        "mprotect.*",
        "api.callbacks.hardened api.mallctl.hardened abi.mallinfo.hardened",
        "*",
        "the page of the options cannot be opened, so what sets one fails",
    ),
    Row(
        VOID,
        "all.*",
        "api.across_fork.*",
        "BackgroundPurge.* (end)",
        "the test waits until memory goes back, which the kernel does not take",
    ),
    Row(
        MISSED,
        "options.leak* options.guard_sample* options.prof*",
        "fault.children.*",
        "*",
        "while allocations are counted the order of the next blocks stays as it was at the fork",
    ),
    Row(
        MISSED,
        "options.limit_hard*",
        "fault.large_runs.*",
        "LargeRuns.AddressesComeBackAfterMany",
        "under a limit addresses do not wait",
    ),
    Row(
        VOID,
        "memory.* mappings.*",
        "abi.bad_pointer*",
        "MappedBlock.* ShrunkLargeBlock.* GrownLargeBlock.* RememberedLargeBlock.* (end)",
        "there is no memory for a block",
    ),
    Row(
        VOID,
        "memory.*",
        "abi.misuse_line.*",
        "*",
        "Python does not start without memory",
    ),
    Row(
        VOID,
        "open_to_write.E* renameat2.E* memory.*",
        "sampling.views.*",
        "(end) test_signals_write_and_toggle",
        "the test waits for a file that cannot be written",
    ),
    Row(
        VOID,
        "*",
        "stress.exit.*",
        "Exit.InASignalHandlerThatInterruptedTheAllocatorAtAnyInstructionWorks",
        "the stand-in looks at the heap at exit, and a handler may have struck the allocator at work",
    ),
    Row(
        OPEN,
        "options.leak:exact",
        "stress.exit.*",
        "(end)",
        "exit in a handler that struck the allocator may wait for ever where a report of leaks is due",
    ),
    Row(
        MISSED,
        "open_to_read.* open_to_write.* renameat2.* sysinfo.* options.cache_bytes:0",
        "api.cgroup.*",
        "*",
        "the test writes the group's files and reads a report, and its program must reach its slow paths",
    ),
    Row(
        MISSED,
        "options.cache_bytes:0",
        "api.statistics.*",
        "Statistics.ShowTheCacheOfAThreadAndItsReturn Statistics.FlushThread*",
        "there is no cache to show",
    ),
    Row(
        OPEN,
        "options.map_bytes:1m",
        "api.statistics.*",
        "Statistics.AgreeWithAShadowCountAtRest",
        "live bytes were 512 more at the end than at the start, once",
    ),
    Row(
        MISSED,
        "options.leak*",
        "preload.deepbind.* preload.operators.* preload.programs.*",
        "*",
        "the report of leaks at the end is output, too",
    ),
    Row(
        MISSED,
        "options.guard_sample* options.leak* options.prof:*",
        "fault.enumerated*.fast",
        "*",
        "blocks that are sampled or counted are not among those that the fast build looks at",
    ),
)


def unused(needed: Iterable[Row]) -> list[Row]:
    """Open rows that no cell needed."""
    used = set(needed)
    return [row for row in ROWS if row.kind is Kind.OPEN and row not in used]
