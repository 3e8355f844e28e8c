"""Is this machine fit to measure, and why not: settings, load, and the noise of a short A/A run."""

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
    return _unless("governor", value == "performance", value, f"{value}; 'performance' keeps the clock steady")


def _unless(name: str, fine: bool, text: str, warning: str = "") -> Finding:
    """A warning unless all is fine."""
    return Finding(name, "ok" if fine else "warn", text if fine else warning or text)


def _graded(name: str, value: float, fine: float, usable: float, text: str) -> Finding:
    """Fine below the one, usable with reserve below the other."""
    return Finding(name, "ok" if value < fine else "warn" if value < usable else "bad", text)


def _steal(interval_s: float) -> Finding:
    before = cpu_ticks()
    time.sleep(interval_s)
    after = cpu_ticks()
    share = (after[1] - before[1]) / max(after[0] - before[0], 1)
    return _graded("steal", share, 0.01, 0.05, f"the host takes {share:.1%} of the CPU time")


def _load() -> Finding:
    load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    others = "" if load < 0.3 * cpus else "; other programs are at work"
    return _graded("load", load / cpus, 0.3, 0.8, f"{load:.2f} on {cpus} CPUs{others}")


def _cores() -> Finding:
    cpus = len(os.sched_getaffinity(0))
    smt = fingerprint.read("/sys/devices/system/cpu/smt/active") == "1"
    text = f"{cpus} CPUs" + (", two to a core" if smt else "")
    shared = f"{text}; the watcher shares the CPU with the program"
    return _unless("cores", cpus > 1, f"{text}; more than {cpus} threads are oversubscribed", shared)


def _thp() -> Finding:
    value = fingerprint.chosen(fingerprint.read("/sys/kernel/mm/transparent_hugepage/enabled")) or "absent"
    luck = f"{value}; memory figures then depend on luck with alignment"
    return _unless("huge pages", value != "always", value, luck)


def _swap() -> Finding:
    memory = fingerprint.memory_kib()
    used = memory["SwapTotal"] - memory["SwapFree"]
    much = f"{used // 1024} MiB in use; resident memory is less than it seems"
    return _unless("swap", used <= 64 * 1024, "not in use" if memory["SwapTotal"] else "none", much)


def _memory() -> Finding:
    free = fingerprint.memory_kib()["MemAvailable"]
    return _unless("memory", free > 2 << 20, f"{free / (1 << 20):.1f} GiB available")


def _limits() -> Finding:
    limits = fingerprint.cgroup_limits()
    return _unless("limits", not limits, "no control-group limit", ", ".join(f"{k}={v}" for k, v in limits.items()))


def _clock() -> Finding:
    source = fingerprint.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    steady = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "")
    return _unless("clock", source in steady, source or "unknown")


def _counters() -> Finding:
    present = Path("/sys/bus/event_source/devices/cpu/type").exists()
    return Finding("hardware counters", "ok", "present" if present else "absent; --counts uses callgrind instead")


def _preload() -> Finding:
    given = os.environ.get("LD_PRELOAD")
    return _unless("LD_PRELOAD", not given, "not set", f"set to {given}; measured programs run without it")


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
    said = f"the same program twice differs by up to {floor:.1%} in {rounds} rounds"
    return _graded("noise", floor, 0.02, 0.05, said)


CHECKS: tuple[Callable[[], Finding], ...] = (
    _cores, _governor, _clock, lambda: _steal(1.0), _load, _memory, _swap, _thp, _limits, _counters, _preload,
)  # fmt: skip


def examine(progress: Report = lambda p: None) -> list[Finding]:
    """Every check, the noise last."""
    return [*(check() for check in CHECKS), noise(progress=progress)]
