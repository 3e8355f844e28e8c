"""Turns traces into experiments of the engine: a plan is made once, and each run replays it under one allocator."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freestone_lab.core import builds, inputs, paths
from freestone_lab.core.errors import UserError
from freestone_lab.engine.plan import Task
from freestone_lab.trace import describe, recording

LEAST_TIMEOUT_S = 60.0
IDLE_MS = 200
MOST_COPIES = 1024  # what freestone-replay runs side by side


@dataclass(frozen=True)
class Way:
    """How traces are replayed."""

    pace: float = 0.0  # 0: as fast as possible; 1: as recorded
    threads: int | None = None  # None: as recorded
    process: int | None = None  # None: the one with the most calls
    idle_ms: int = IDLE_MS


def make_plan(trace: Path, way: Way) -> Path:
    """The plan of a trace, kept among what the lab makes for itself; made anew when what makes it changed."""
    data = inputs.trace(trace)
    replayer = builds.built(recording.REPLAYER)
    about = f"{way.process} {way.threads} {replayer.stat().st_mtime_ns}"
    key = hashlib.sha256(data + about.encode()).hexdigest()[:20]
    plan = paths.cache_dir() / "plans" / f"{key}.plan"
    if plan.exists():
        return plan
    plan.parent.mkdir(parents=True, exist_ok=True)
    partial = plan.with_suffix(f".{os.getpid()}")
    words = [str(replayer), "plan", str(trace), str(partial)]
    for name, value in (("--process", way.process), ("--threads", way.threads)):
        if value is not None:
            words += [name, str(value)]
    try:
        describe.replayer(words)
        partial.replace(plan)
    finally:
        partial.unlink(missing_ok=True)
    return plan


def command(plan: Path, way: Way, copies: int = 1, null: bool = False, own_kib: float | None = None) -> list[str]:
    """The command line of one replay. All memory but `own_kib` is the allocator's; by default, what the calls add."""
    words = [str(builds.built(recording.REPLAYER)), "run", "--idle-ms", str(way.idle_ms)]
    if way.pace:
        words += ["--pace", str(way.pace)]
    if copies > 1:
        words += ["--copies", str(copies)]
    if own_kib is not None:
        words += ["--own-kib", f"{own_kib:.0f}"]
    return [*words, *(["--null"] if null else []), str(plan)]


def replay(words: Sequence[str], preload: str | None = None) -> dict[str, Any]:
    """One replay outside the engine; what it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if preload:
        environment["LD_PRELOAD"] = preload
    found: dict[str, Any] = json.loads(describe.replayer(words, environment=environment))
    return found


def task(trace: Path, way: Way) -> Task:
    """A replay as an experiment. It runs without an allocator first, to know what replaying itself takes."""
    plan = make_plan(trace, way)
    alone = replay(command(plan, Way(idle_ms=0), null=True))
    recorded = int(alone["params"]["threads"])
    copies = max(1, -(-way.threads // recorded)) if way.threads else 1
    if copies > MOST_COPIES:
        raise UserError(f"--threads {way.threads}: expected at most {MOST_COPIES * recorded} of {trace}")
    own_s, own_kib = float(alone["cpu_s"]) * copies, float(alone["begin_kib"])
    caveats = [
        f"{alone['calls'] * copies} calls; counted are the CPU time of the whole replay, page faults and first touches "
        f"included, less what the same replay takes without an allocator (about {own_s:.3g} s), and all memory, the "
        f"allocator's start-up included, less {own_kib:.0f} KiB of the replayer's"
    ]
    if alone["dropped"]:
        caveats.append(f"{alone['dropped']} events name blocks that are not in the trace; they are left out")
    paced = alone["series"]["live"][-1][0] / way.pace if way.pace else 0.0
    seconds = max(0.1, 4 * own_s) + paced + way.idle_ms / 1000
    return Task(
        id=f"replay/{trace.stem}",
        workload=trace.stem,
        argv=tuple(command(plan, way, copies, own_kib=own_kib)),
        params={"trace": trace.name, "calls": alone["calls"] * copies, "threads": recorded * copies, "pace": way.pace},
        cwd=Path("/"),
        timeout_s=LEAST_TIMEOUT_S + 20 * seconds,
        read="workload",
        inputs=(trace,),
        caveats=tuple(caveats),
        seconds=seconds,
    )
