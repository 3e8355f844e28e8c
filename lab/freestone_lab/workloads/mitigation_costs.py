"""What each mitigation of the hardened build costs: a library of each alone, measured beside the fast build in one run.

A mitigation that needs the trailer is built with it. Its own cost is what it adds to the trailer's.
"""

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.analysis import claims, paired
from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Result
from freestone_lab.engine.plan import Task
from freestone_lab.peers import discover
from freestone_lab.workloads import tasks as bench
from freestone_lab.workloads.suites import WEIGHTS

FAST = "freestone"
TRAILER = "trailer"
ALL = "all"
POLICY = Path("allocator/src/policy/policy.h")
TASKS = ("micro:rounds=300000,threads=1", "pair:size=64,rounds=1000000", "lifetimes:threads=1")
APP = "sqlite3"
_BIT = re.compile(r"\.(\w+) = \(kMitigationBits & (\d+)U\) != 0")
_NEEDS = re.compile(r"static_assert\(!kMitigations\.(\w+) \|\| kMitigations\.trailer")


@dataclass(frozen=True)
class Variant:
    """One library: a mitigation alone, or with the trailer that it needs."""

    name: str
    bits: int
    base: str  # whose time its own cost is counted from


def variants(policy: str) -> list[Variant]:
    """The libraries to build, as policy.h names the bits and what needs the trailer."""
    bits = {name: int(value) for name, value in _BIT.findall(policy)}
    needs = set(_NEEDS.findall(policy))
    if TRAILER not in bits:
        raise UserError(
            f"{POLICY}: no bit named {TRAILER!r} found, expected lines like '.trailer = (kMitigationBits & 1U) != 0'"
        )
    own = [
        Variant(name, bit | (bits[TRAILER] if name in needs else 0), TRAILER if name in needs else FAST)
        for name, bit in bits.items()
    ]
    return [*own, Variant(ALL, sum(bits.values()), FAST)]


def policy_text(root: Path) -> str:
    return (root / POLICY).read_text(encoding="utf-8")


def build(wanted: list[Variant], say: Callable[[str], None]) -> list[Peer]:
    """Builds every library in one folder, build/mitigations; the fast build beside them."""
    folder = paths.root() / "build" / "mitigations"
    sets = ";".join(str(v.bits) for v in wanted)
    say(f"building {len(wanted)} libraries in {folder}")
    configure = ["cmake", "-S", str(paths.root()), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DFREESTONE_MITIGATION_SETS={sets}", "-DFREESTONE_TESTS=OFF", "-DFREESTONE_LAB=OFF"]
    targets = ["freestone", *(f"freestone_hardened_{v.bits}" for v in wanted)]
    make = ["cmake", "--build", str(folder), "-j", str(os.cpu_count() or 1), "--target", *targets]
    for command in (configure, make):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise UserError(f"{' '.join(command[:2])} failed: {(done.stdout + done.stderr).strip()[-600:]}")
    named = [f"{FAST}={folder / 'libfreestone.so'}"]
    named += [f"{v.name}={folder / f'libfreestone-hardened-{v.bits}.so'}" for v in wanted]
    return [discover.find("glibc"), *discover.discover(only=named)]


def tasks(say: Callable[[str], None]) -> list[Task]:
    return bench.select([*TASKS, APP], bench.workload_program(), say)


@dataclass(frozen=True)
class Cost:
    """One column of the table: how long a workload takes under each library, relative to the fast build."""

    title: str
    ratios: dict[str, float]


def costs(result: Result) -> list[Cost]:
    return [
        Cost(
            "micro, weighted" if e.workload == "micro" else e.id.partition(":")[0].removeprefix("app/"),
            {p.name: ratio for p in result.peers if (ratio := _relative(e, p.name)) is not None},
        )
        for e in result.experiments
    ]


def _relative(experiment: Experiment, peer: str) -> float | None:
    """Over the fast build: of the figure that decides, or, of `micro`, of all sizes by their weights."""
    weights = {f"malloc_{size}": weight for size, weight in WEIGHTS.items()}
    if experiment.workload != "micro":
        weights = {claims.headline(experiment)[0]: 1.0}
    total = 0.0
    for figure, weight in weights.items():
        estimate = None if peer == FAST else paired.estimate(experiment, peer, FAST, figure)
        if estimate is None and peer != FAST:
            return None
        total += weight * (estimate.ratio if estimate else 1.0)
    return total
