"""Is this machine fit to measure, and why not: settings, load, and the noise of a short A/A run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freestone_lab.analysis.inference import noise_floor
from freestone_lab.analysis.paired import estimate
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import control_name
from freestone_lab.engine.experiment import Engine
from freestone_lab.engine.plan import Plan, Report, Task
from freestone_lab.measure import fingerprint
from freestone_lab.measure.process import cpu_ticks
from freestone_lab.peers import discover

State = Literal["ok", "warn", "bad"]
NOISE_ROUNDS = 20


@dataclass(frozen=True)
class Finding:
    """One check's outcome. `bad` means that figures of time cannot be trusted, `warn` that they say less."""

    name: str
    state: State
    text: str


def _governor() -> Finding:
    value = fingerprint.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if not value:
        return Finding("governor", "ok", "the machine does not tell (usual for a virtual one)")
    state: State = "ok" if value == "performance" else "warn"
    return Finding("governor", state, value if state == "ok" else f"{value}; 'performance' keeps the clock steady")


def _steal(interval_s: float) -> Finding:
    before = cpu_ticks()
    time.sleep(interval_s)
    after = cpu_ticks()
    share = (after[1] - before[1]) / max(after[0] - before[0], 1)
    state: State = "ok" if share < 0.01 else "warn" if share < 0.05 else "bad"
    return Finding("steal", state, f"the host takes {share:.1%} of the CPU time")


def _load() -> Finding:
    load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    state: State = "ok" if load < 0.3 * cpus else "warn" if load < 0.8 * cpus else "bad"
    return Finding(
        "load", state, f"{load:.2f} on {cpus} CPUs" + ("" if state == "ok" else "; other programs are at work")
    )


def _cores() -> Finding:
    cpus = len(os.sched_getaffinity(0))
    smt = fingerprint.read("/sys/devices/system/cpu/smt/active") == "1"
    text = f"{cpus} CPUs" + (", two to a core" if smt else "")
    if cpus < 2:
        return Finding("cores", "warn", f"{text}; the watcher shares the CPU with the program")
    return Finding("cores", "ok", f"{text}; more than {cpus} threads are oversubscribed")


def _thp() -> Finding:
    value = fingerprint.chosen(fingerprint.read("/sys/kernel/mm/transparent_hugepage/enabled")) or "absent"
    state: State = "warn" if value == "always" else "ok"
    return Finding(
        "huge pages",
        state,
        value + ("; memory figures then depend on luck with alignment" if value == "always" else ""),
    )


def _swap() -> Finding:
    memory = fingerprint.memory_kib()
    used = memory["SwapTotal"] - memory["SwapFree"]
    if used > 64 * 1024:
        return Finding("swap", "warn", f"{used // 1024} MiB in use; resident memory is less than it seems")
    return Finding("swap", "ok", "not in use" if memory["SwapTotal"] else "none")


def _memory() -> Finding:
    free = fingerprint.memory_kib()["MemAvailable"]
    state: State = "ok" if free > 2 << 20 else "warn"
    return Finding("memory", state, f"{free / (1 << 20):.1f} GiB available")


def _limits() -> Finding:
    limits = fingerprint.cgroup_limits()
    if not limits:
        return Finding("limits", "ok", "no control-group limit")
    return Finding("limits", "warn", ", ".join(f"{k}={v}" for k, v in limits.items()))


def _clock() -> Finding:
    source = fingerprint.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    state: State = (
        "ok" if source in ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "") else "warn"
    )
    return Finding("clock", state, source or "unknown")


def _counters() -> Finding:
    present = Path("/sys/bus/event_source/devices/cpu/type").exists()
    text = "present" if present else "absent; --counts uses callgrind instead"
    return Finding("hardware counters", "ok", text)


def _preload() -> Finding:
    if os.environ.get("LD_PRELOAD"):
        return Finding("LD_PRELOAD", "warn", f"set to {os.environ['LD_PRELOAD']}; measured programs run without it")
    return Finding("LD_PRELOAD", "ok", "not set")


def noise(rounds: int = NOISE_ROUNDS, progress: Report = lambda p: None) -> Finding:
    """The A/A control on a short program: how small a difference this machine can show now."""
    program = "i=0; x=0; while [ $i -lt 12000 ]; do x=$((x + i)); i=$((i + 1)); done"
    task = Task("noise", "a short loop of /bin/sh", ("/bin/sh", "-c", program), cwd=Path("/"))
    plan = Plan(rounds=rounds)
    try:
        experiment = Engine(task, [discover.find(discover.LIBC_PEER)], discover.LIBC_PEER, plan, progress).measure()
    except UserError as error:
        return Finding("noise", "bad", str(error))
    floor = noise_floor(estimate(experiment, control_name(discover.LIBC_PEER), discover.LIBC_PEER, "wall"))
    state: State = "ok" if floor < 0.02 else "warn" if floor < 0.05 else "bad"
    return Finding("noise", state, f"the same program twice differs by up to {floor:.1%} in {rounds} rounds")


CHECKS: tuple[Callable[[], Finding], ...] = (
    _cores, _governor, _clock, lambda: _steal(1.0), _load, _memory, _swap, _thp, _limits, _counters, _preload,
)  # fmt: skip


def examine(progress: Report = lambda p: None) -> list[Finding]:
    """Every check, the noise last."""
    return [*(check() for check in CHECKS), noise(progress=progress)]
