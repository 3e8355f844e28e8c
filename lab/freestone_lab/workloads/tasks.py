"""Turns the suites' tables into tasks of the method engine: workloads of the one workload program, and real programs.

`suites.py` and `apps.py` hold tables only; how a row becomes a process with checked output stands here.
"""

import contextlib
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core import builds, units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.peers import discover
from freestone_lab.workloads import apps, suites

NULL_PEER = "null"
DEFAULT_SUITE = "quick"
ROUNDS = 10
SERIES_ROUNDS = 1  # a suite's curves differ little between rounds, and are most of a result file
CONTROL_ROUNDS = 3  # the null allocator's figures are shown and not judged, so a few suffice
TIMEOUT_S = 300.0
LEAST_TIMEOUT_S = 60.0
OVERHEAD_S = 0.08  # what starting, watching and reading one process costs
SLOWDOWN = 1.25  # the allocators' mean time over the baseline's, across the suites
APP_SECONDS = 0.65  # about what a real program's fixed work takes


def workload_program() -> Path:
    """The built workload program; built first when it is missing."""
    return builds.built(suites.PROGRAM)


@cache
def workloads(program: Path) -> dict[str, dict[str, Any]]:
    """What the workload program says of itself: name -> {summary, params}."""
    done = subprocess.run([str(program), "list", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise UserError(f"{program} does not list its workloads: {done.stderr.strip()}")
    return {w["name"]: w for w in json.loads(done.stdout)["workloads"]}


def _workload_task(
    program: Path, identity: str, workload: str, params: Mapping[str, Any], timeout_s: float, seconds: float = 1.0,
    unfit: Mapping[str, str] = MappingProxyType({}),
) -> Task:  # fmt: skip
    """One workload; its checksum stands for its output."""
    return Task(
        id=identity,
        workload=workload,
        argv=(str(program), workload, *(f"--{name}={value}" for name, value in params.items())),
        params=dict(params),
        cwd=Path("/"),
        timeout_s=timeout_s,
        read="workload",
        seconds=seconds,
        unfit=unfit,
    )


def row_task(program: Path, row: suites.WorkloadRun) -> Task:
    """A suite's row as a task. Its time limit is generous beside what the row takes under glibc."""
    limit = LEAST_TIMEOUT_S + 20 * row.seconds
    unfit = {} if row.null_fits else {NULL_PEER: f"it never frees and would need {row.null_gib:g} GiB"}
    return _workload_task(program, row.id, row.workload, row.params, limit, row.seconds, unfit)


def app_task(command: apps.Command) -> Task:
    """A real program as a task: output compared with the baseline's and with what the table expects."""
    return Task(
        id=f"app/{command.name}",
        workload=command.title,
        argv=command.argv,
        env=command.env,
        cwd=command.cwd,
        stdin=command.stdin,
        output_files=command.outputs,
        check=command.check,
        caveats=command.caveats,
        seconds=APP_SECONDS,
    )


def custom_task(program: Path, name: str) -> Task | None:
    """`lifetimes:threads=2,law=program` as a task; None when that is no workload. UserError for a wrong parameter."""
    workload, colon, text = name.partition(":")
    about = workloads(program).get(workload)
    if about is None:
        return None
    accepted = [p["name"] for p in about["params"]]
    params: dict[str, str] = {}
    for part in text.split(",") if colon else ():
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UserError(f"'{name}': expected {workload}:PARAMETER=VALUE,..., found '{part}'")
        if key not in accepted:
            raise UserError(f"'{name}': {workload} has no parameter '{key}'; it has {', '.join(accepted)}")
        params[key] = value
    task = _workload_task(program, name, workload, params, TIMEOUT_S)
    checked = subprocess.run([*task.argv, "--help"], capture_output=True, text=True)
    if checked.returncode:
        raise UserError(f"'{name}': {checked.stderr.strip()}")
    return task


def _app_tasks(names: Sequence[str], say: Callable[[str], None]) -> list[Task]:
    found, absent = apps.available(names)
    if absent:
        say(f"not installed, skipped (freestone setup --apps installs them): {', '.join(a.name for a in absent)}")
    tasks = []
    for app in found:
        try:
            tasks.append(app_task(apps.as_command(app, apps.work_folder())))
        except apps.AppError as error:
            say(f"skipped: {error}")
    return tasks


def select(names: Sequence[str], program: Path, say: Callable[[str], None]) -> list[Task]:
    """The experiments of the named suites, workloads and applications, each once, in the order given."""
    app_names = {app.name for app in apps.APPS}
    chosen: list[Task] = []
    for name in names:
        custom = custom_task(program, name) if ":" in name else None
        if custom:
            chosen.append(custom)
        elif name in app_names:
            chosen += _app_tasks([name], say)
        elif name in suites.SUITES:
            chosen += [row_task(program, row) for row in suites.suite(name)]
            if name in suites.WITH_APPS:
                chosen += _app_tasks(suites.WITH_APPS[name], say)
        else:
            chosen += _workload_runs(program, name, sorted(app_names))
    return list({task.id: task for task in chosen}.values())


def _workload_runs(program: Path, name: str, app_names: Sequence[str]) -> list[Task]:
    """Every row of the suites that uses the workload `name`; the workload's own defaults when none does."""
    try:
        return [row_task(program, row) for row in suites.suite(name)]
    except UserError:
        plain = custom_task(program, name)
        if plain is None:
            known = ", ".join([*suites.SUITES, *workloads(program), *app_names])
            raise UserError(f"no suite, workload or application is named '{name}'; there are: {known}") from None
        return [plain]


def plan(rounds: int | None, seed: int) -> Plan:
    """A plan for exactly this many rounds of each experiment."""
    count = rounds or ROUNDS
    return Plan(rounds=count, seed=seed, control_rounds=CONTROL_ROUNDS, series_rounds=SERIES_ROUNDS)


@dataclass(frozen=True)
class Cost:
    """What one experiment costs in seconds: once, and for every round."""

    once: float
    round: float


def cost(task: Task, peers: Sequence[Peer]) -> Cost:
    """Estimates the cost. The baseline runs twice a round. A workload program warms up with one run of it."""
    run = task.seconds * SLOWDOWN + OVERHEAD_S
    controls = sum(p.kind == "control" and p.name not in task.unfit for p in peers)
    judged = sum(p.kind != "control" for p in peers)
    warm_up = 1 if task.read == "workload" else judged + 1 + controls
    return Cost(once=warm_up * run, round=(judged + 1 + controls) * run)


def total(costs: Sequence[Cost], rounds: int) -> float:
    return sum(c.once + c.round * rounds for c in costs)


def rounds_within(costs: Sequence[Cost], budget_s: float, most: int) -> int:
    """How many rounds of every experiment the budget allows; 0 if not one."""
    each = sum(c.round for c in costs)
    return max(0, min(most, int((budget_s - total(costs, 0)) / each))) if each > 0 else most


def forecast(tasks: Sequence[Task], chosen: Sequence[Peer], plan: Plan, limit_s: float | None) -> str:
    """One line before a sitting starts: what will run, and about how long it takes."""
    costs = [cost(task, chosen) for task in tasks]
    rounds = plan.rounds if limit_s is None else rounds_within(costs, limit_s, plan.rounds)
    judged = sum(p.kind != "control" for p in chosen)
    what = f"{_counted(len(tasks), 'experiment')} under {_counted(judged, 'allocator')}"
    if limit_s is not None and rounds < LEAST_ROUNDS:
        least = units.words(total(costs, LEAST_ROUNDS))
        line = f"--budget {units.words(limit_s)} is too short for {what}: {LEAST_ROUNDS} rounds take about {least}"
        return f"{line}; what there is no time for will be named"
    expected = units.words(total(costs, rounds))
    return f"{_counted(rounds, 'round')} of {what}: about {expected}; Ctrl-C keeps what was measured"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def with_null(chosen: Sequence[Peer]) -> list[Peer]:
    """The peers, and the null allocator if it is built. Its figures are the workload's own cost."""
    found = list(chosen)
    if all(p.name != NULL_PEER for p in found):
        with contextlib.suppress(discover.PeerError):
            found.append(discover.find(NULL_PEER))
    return found
