"""What the kernel, or the options, may do to the program: the rows of docs/TORTURE.md.

The names of calls come from points.def. stand_in.cc says what a rule is.
"""

import re
from dataclasses import dataclass
from pathlib import Path

# The errors that a line of the library tells from others, by call; torture_test.py compares this with the sources. All
# others are one axis.
TOLD_APART = {"madvise_populate": ("EINVAL",), "madvise_unknown": ("ENOMEM",)}

# Options without which hardly a run makes the call.
MADE_BY = {"madvise_huge": "thp:always"}


@dataclass(frozen=True)
class Point:
    """A row of points.def; `number` is its place in the census."""

    name: str
    number: int
    need: str


@dataclass(frozen=True)
class Axis:
    """`rules` are STAND_IN and `options` STAND_IN_CONF. Only the builds named run it. A quiet one asks for nothing that
    takes calls which glibc's malloc does without."""

    name: str
    rules: str = ""
    options: str = ""
    builds: tuple[str, ...] = ("fast", "hardened")
    quiet: bool = False


def points() -> list[Point]:
    text = (Path(__file__).parent / "points.def").read_text(encoding="utf-8")
    rows = re.findall(r"^POINT\((\w+), .*, (\w+)\)$", text, re.MULTILINE)
    return [Point(name, number, need) for number, (name, need) in enumerate(rows)]


def refusals() -> list[Axis]:
    optional = [point.name for point in points() if point.need != "needed"]
    result = [Axis(name, f"{name}=EPERM", MADE_BY.get(name, "")) for name in optional]
    return result + [Axis(f"{c}.{e}", f"{c}={e}") for c, errors in TOLD_APART.items() for e in errors]


def killed() -> Axis:
    return Axis("optional.KILL", " ".join(f"{p.name}=KILL" for p in points() if p.need == "optional"), quiet=True)


BOUNDS = [
    Axis("peace"),
    *(Axis(f"{call}.half", f"{call}=ENOMEM%2") for call in ("madvise", "mprotect", "mremap", "munmap")),
    Axis("all.ENOSYS", "madvise=ENOSYS mremap=ENOSYS getrandom=ENOSYS prlimit=ENOSYS sched=ENOSYS"),
    Axis("all.EPERM", "madvise=EPERM mremap=EPERM mprotect=EPERM munmap=EPERM"),
    *(Axis(f"memory.after_{count}", f"mmap=ENOMEM@{count + 1}") for count in (4, 12, 40)),
    Axis("memory.third", "mmap=ENOMEM%3"),
    *(Axis(f"mappings.after_{count}", f"full={count}") for count in (8, 30)),
    *(Axis(f"page.{size}k", f"page={size}") for size in (16, 64)),
    Axis("window.reserved", "mmap_at=EPERM mmap_reserve=ENOMEM>100"),
    Axis("window.taken", "mmap_at=ELSEWHERE+129-1048576"),
]

# Both ends of what bounds caches, free memory, limits, samples and guards.
OPTIONS = """
    cache_bytes:0 cache_bytes:8m dirty_bytes:0 dirty_bytes:1024g map_bytes:1m dirty_decay_ms:0 dirty_decay_ms:3600000
    give_back_percent:0 give_back_percent:100 thp:off thp:always limit_soft:1 limit_hard:1 limit_hard:24m
    limit_hard:1024g pressure:true background_purge:true stats_interval_ms:1,stats_file:/dev/null live_page:true
    prof:true,prof_sample_bytes:1,prof_final:false guard_sample:1,guard_slots:4 guard_sample:1,guard_slots:65536
    prof:true,prof_sample_bytes:16k,prof_final:false,prof_unwind:frame_pointer leak:exact
""".split()
HARDENED_OPTIONS = """
    seal_bytes:0 seal_bytes:1024g hardening_rate:0 exit_check_bytes:0 exit_check_bytes:1024g check_libc:false
    on_error:report
""".split()

# Those that have found defects which no smaller test shows.
FOUND = ("all.EPERM", "getdents64", "lseek", "options.limit_hard:1")


def axes() -> list[Axis]:
    options = [Axis(f"options.{text}", options=text) for text in OPTIONS]
    hardened = [Axis(f"options.{text}", options=text, builds=("hardened",)) for text in HARDENED_OPTIONS]
    return [*BOUNDS, *options, *hardened, *refusals(), killed()]
