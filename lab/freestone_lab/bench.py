"""Turns the suites' tables into tasks of the method engine: workloads of the one workload program, and real programs.

`suites.py` and `apps.py` hold tables only; how a row becomes a process with checked output stands here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from freestone_lab import paths, peers
from freestone_lab.errors import UserError
from freestone_lab.method import Plan, Task
from freestone_lab.model import Peer

PROGRAM = "freestone-workload"
NULL_PEER = "null"
DEFAULT_SUITE = "quick"
DEFAULT_ROUNDS = 10
DEFAULT_TIMEOUT_S = 300.0


class WorkloadRow(Protocol):
    """A row of `suites.SUITES`: one workload with fixed parameters."""

    @property
    def workload(self) -> str: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
    @property
    def rounds(self) -> int: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def caveats(self) -> Sequence[str]: ...


def workload_program() -> Path:
    """The built workload program; built first when it is missing."""
    path = paths.build_dir() / PROGRAM
    if path.exists():
        return path
    done = subprocess.run([str(paths.root() / "freestone"), "build", PROGRAM], stdout=subprocess.DEVNULL, check=False)
    if done.returncode != 0 or not path.exists():
        raise UserError(f"{PROGRAM} could not be built; the build's messages stand above")
    return path


@cache
def workloads(program: Path) -> dict[str, dict[str, Any]]:
    """What the workload program says of itself: name -> {summary, params}."""
    done = subprocess.run([str(program), "list", "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"{program} does not list its workloads: {done.stderr.strip()}")
    return {w["name"]: w for w in json.loads(done.stdout)["workloads"]}


def suites() -> dict[str, list[WorkloadRow]]:
    """The tables of `suites.py`; empty when that part of the lab is absent."""
    if importlib.util.find_spec("freestone_lab.suites") is None:
        return {}
    found: dict[str, list[WorkloadRow]] = importlib.import_module("freestone_lab.suites").SUITES
    return found


def experiment_id(workload: str, params: Mapping[str, Any]) -> str:
    """`lifetimes/threads=2,law=article`: unique for one workload and its parameters."""
    text = ",".join(f"{name}={value}" for name, value in sorted(params.items()))
    return f"{workload}/{text}" if text else workload


def workload_task(
    program: Path, workload: str, params: Mapping[str, Any], timeout_s: float, caveats: Sequence[str] = ()
) -> Task:
    """The task of one workload; its checksum stands for its output."""
    return Task(
        id=experiment_id(workload, params),
        workload=workload,
        argv=(str(program), workload, *(f"--{name}={value}" for name, value in params.items())),
        params=dict(params),
        cwd=Path("/"),
        timeout_s=timeout_s,
        read="workload",
        caveats=tuple(caveats),
    )


def fixed_plan(rounds: int, seed: int) -> Plan:
    """Exactly that many rounds."""
    return Plan(min_rounds=rounds, max_rounds=rounds, budget_s=None, precision=None, seed=seed)


def parse_workload(name: str) -> tuple[str, dict[str, str]]:
    """`lifetimes:threads=2,law=program` as a workload and its parameters."""
    workload, _, text = name.partition(":")
    params: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            raise UserError(f"'{name}': expected WORKLOAD:PARAMETER=VALUE,..., found '{part}'")
        params[key] = value
    return workload, params


def select(names: Sequence[str], *, rounds: int | None, seed: int, program: Path) -> list[tuple[Task, Plan]]:
    """The experiments of the named suites, workloads and applications, each once, in the order given."""
    from freestone_lab import bench_apps

    table, known, apps = suites(), workloads(program), bench_apps.names()
    chosen: dict[str, tuple[Task, Plan]] = {}

    def add(task: Task, count: int) -> None:
        chosen.setdefault(task.id, (task, fixed_plan(rounds or count, seed)))

    for name in names:
        workload, params = parse_workload(name)
        if name in table or name == "apps":
            for row in table.get(name, []):
                add(workload_task(program, row.workload, row.params, row.timeout_s, row.caveats), row.rounds)
            if name in ("apps", "full"):
                for task in bench_apps.tasks(sorted(apps)):
                    add(task, DEFAULT_ROUNDS)
        elif workload in known:
            accepted = {p["name"] for p in known[workload]["params"]}
            wrong = [key for key in params if key not in accepted]
            if wrong:
                raise UserError(f"{workload} has no parameter '{wrong[0]}'; it has {', '.join(sorted(accepted))}")
            add(workload_task(program, workload, params, DEFAULT_TIMEOUT_S), DEFAULT_ROUNDS)
        elif name in apps:
            for task in bench_apps.tasks([name]):
                add(task, DEFAULT_ROUNDS)
        else:
            every = ", ".join([*table, "apps", *known, *sorted(apps)])
            raise UserError(f"no suite, workload or application is named '{name}'; there are: {every}")
    return list(chosen.values())


def with_null(chosen: Sequence[Peer]) -> list[Peer]:
    """The peers and the null allocator, whose figures are the workload's own cost; it is left out when not built."""
    found = list(chosen)
    if any(p.name == NULL_PEER for p in found):
        return found
    with contextlib.suppress(peers.PeerError):
        found.append(peers.find(NULL_PEER))
    return found
