"""A row of a suite: a workload with its parameters, what it shows, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WorkloadRun:
    """One experiment of a suite: a workload program with fixed parameters."""

    id: str
    workload: str
    seconds: float
    memory_mib: int
    shows: str  # what it answers, or the table or plot that it reproduces
    params: dict[str, str | int] = field(default_factory=dict)
    null_gib: float = 0.0  # what an allocator that never frees holds in the end; given where it is much

    @property
    def null_fits(self) -> bool:
        """Whether an allocator that never frees can finish on the machine that the suites are sized for."""
        return self.null_gib <= MOST_NULL_GIB

    def arguments(self) -> list[str]:
        """What follows the program's name on the command line."""
        return [self.workload, *(f"--{name}={value}" for name, value in self.params.items())]


MOST_NULL_GIB = 12.0

# All requests of a run's largest process added up, where they are gigabytes; a test counts them again.
NULL_GIB: dict[str, float] = {
    **{f"throughput/threads={t}": 125.0 * t for t in (1, 2, 4, 8)},
    **{f"latency/published/threads={t}": 391.0 for t in (1, 2, 4, 8)},
    **{f"burst/threads={t}": 3.9 for t in (1, 2, 4, 8)},
    "overhead/published": 769.0,
    "larson/medium": 10.3,
    "larson/mixed": 9.2,
    "larson/large": 13.8,
    "micro/published": 158.0,
    "realloc/append": 38.4,
    "pair/calls": 12.5,
    "pair/new": 122.0,
}


def null_gib(identity: str) -> float:
    """What an allocator that never frees would hold at the end of an experiment, if that is gigabytes; else 0."""
    return NULL_GIB.get(identity, 0.0)


def row(id_: str, seconds: float, memory_mib: int, shows: str, **params: str | int) -> WorkloadRun:
    """A run whose workload is the first part of its id; `idle_ms=0` is passed as `--idle-ms=0`."""
    named = {name.replace("_", "-"): value for name, value in params.items()}
    return WorkloadRun(id_, id_.split("/")[0], seconds, memory_mib, shows, named, null_gib(id_))
