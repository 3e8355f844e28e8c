"""What the kernel, or the options, may do to a test: the matrix's columns.

The names of calls come from points.def. stand_in.cc says what a rule is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ERRORS = ("EPERM", "ENOSYS", "EINVAL", "ENOMEM")
# The errors that a line of the library tells from others, by call; judge_test.py compares this with the sources.
TOLD_APART = {"madvise_populate": ("EINVAL",), "madvise_unknown": ("ENOMEM",)}


@dataclass(frozen=True)
class Point:
    """A row of points.def; the byte of the census with its number tells whether it was called and refused."""

    name: str
    number: int
    need: str


@dataclass(frozen=True)
class Axis:
    """`rules` are STAND_IN and `options` STAND_IN_CONF. Without `points` every test meets it; else those tests do that
    make one of these calls, with `in_main` after main has begun. Only the builds named run it. Where memory `runs_out`,
    a program may end for want of it."""

    name: str
    rules: str = ""
    options: str = ""
    points: tuple[int, ...] = ()
    builds: tuple[str, ...] = ("fast", "hardened")
    in_main: bool = False
    runs_out: bool = False


def points() -> list[Point]:
    text = (Path(__file__).parent / "points.def").read_text(encoding="utf-8")
    rows = re.findall(r"^POINT\((\w+), .*, (\w+)\)$", text, re.MULTILINE)
    return [Point(name, number, need) for number, (name, need) in enumerate(rows)]


def axis(name: str, rules: str, calls: str = "", *, in_main: bool = False) -> Axis:
    """`calls`: the beginning of the names of the calls that it changes."""
    numbers = tuple(p.number for p in points() if any(p.name.startswith(call) for call in calls.split()))
    return Axis(name, rules, points=numbers, in_main=in_main)


def refusals() -> list[Axis]:
    optional = [p for p in points() if p.need != "needed"]
    result = [axis(f"{p.name}.{error}", f"{p.name}={error}", p.name) for p in optional for error in ERRORS]
    killed = [p for p in optional if p.need == "optional"]
    return result + [axis(f"{p.name}.KILL", f"{p.name}=KILL", p.name, in_main=True) for p in killed]


MEMORY = "madvise mprotect mremap munmap"
BOUNDS = [
    *(axis(f"{call}.half", f"{call}=ENOMEM%2", call) for call in MEMORY.split()),
    axis("all.ENOSYS", "madvise=ENOSYS mremap=ENOSYS getrandom=ENOSYS prlimit=ENOSYS sched=ENOSYS"),
    axis("all.EPERM", "madvise=EPERM mremap=EPERM mprotect=EPERM munmap=EPERM"),
    Axis("memory.after_4", "mmap=ENOMEM@5", runs_out=True),
    Axis("memory.after_12", "mmap=ENOMEM@13", runs_out=True),
    Axis("memory.after_40", "mmap=ENOMEM@41", runs_out=True),
    Axis("memory.third", "mmap=ENOMEM%3", runs_out=True),
    Axis("mappings.after_8", "full=8", runs_out=True),
    Axis("mappings.after_30", "full=30", runs_out=True),
    axis("page.16k", "page=16"),
    axis("page.64k", "page=64"),
    Axis("window.reserved", "mmap_at=EPERM mmap_reserve=ENOMEM>100", runs_out=True),
    Axis("window.taken", "mmap_at=ELSEWHERE+129-1048576", runs_out=True),
]

# Both ends of what bounds caches, free memory, limits, samples and guards.
OPTIONS = (
    "cache_bytes:0",
    "cache_bytes:8m",
    "dirty_bytes:0",
    "dirty_bytes:1024g",
    "map_bytes:1m",
    "dirty_decay_ms:0",
    "dirty_decay_ms:3600000",
    "thp:off",
    "thp:always",
    "limit_soft:1",
    "limit_hard:1",
    "limit_hard:24m",
    "limit_hard:1024g",
    "pressure:true",
    "background_purge:true",
    "stats_interval_ms:1,stats_file:/dev/null",
    "live_page:true",
    "prof:true,prof_sample_bytes:1,prof_final:false",
    "prof:true,prof_sample_bytes:16k,prof_final:false,prof_unwind:frame_pointer",
    "guard_sample:1,guard_slots:4",
    "guard_sample:1,guard_slots:65536",
    "leak:exact",
)
HARDENED_OPTIONS = (
    "seal_bytes:0",
    "seal_bytes:1024g",
    "hardening_rate:0",
    "exit_check_bytes:0",
    "exit_check_bytes:1024g",
    "check_libc:false",
    "on_error:report",
)


def alike(axis: Axis) -> list[str]:
    """The axes that are this one to the library: it does not tell their errors from each other."""
    call, _, error = axis.name.partition(".")
    apart = TOLD_APART.get(call, ())
    if not axis.points or error not in ERRORS or error in apart:
        return [axis.name]
    return [f"{call}.{other}" for other in ERRORS if other not in apart]


def kind(axis: Axis) -> str:
    """The same for axes that differ in degree: an option's ends, the sizes of pages, how many mappings there are."""
    if axis.points:
        return axis.name
    return axis.name.partition(":" if axis.options else ".")[0]


def in_turn(names: Sequence[str], test: str) -> str:
    """The one of these axes that this test meets. Tests share them out evenly."""
    return names[zlib.crc32(f"{names[0]} {test}".encode()) % len(names)]


def axes() -> list[Axis]:
    options = [Axis(f"options.{text}", options=text, runs_out=text.startswith("limit_hard")) for text in OPTIONS]
    hardened = [Axis(f"options.{text}", options=text, builds=("hardened",)) for text in HARDENED_OPTIONS]
    return [*BOUNDS, *options, *hardened, *refusals()]
