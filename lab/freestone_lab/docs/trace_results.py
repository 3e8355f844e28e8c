"""The section of docs/BENCHMARKS.md about recorded programs, made from what `freestone bench traces` stored."""

from __future__ import annotations

from math import log
from statistics import median
from typing import Any

from freestone_lab.analysis import paired, sequential
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import Experiment, Result, control_name
from freestone_lab.docs.pages import cell_text, grid
from freestone_lab.report import cells, quantity
from freestone_lab.report.overview import failures_of

NAME = "traces"
TIMES = ("whole", "calls")  # results of former replayers hold only the time in calls
MEMORY = {"rss": "peak", "rss_mean": "mean resident"}
COUNTED = {"whole": "time is that of the whole replay, less its own", "calls": "time is that inside the calls alone"}
WORST = 3  # rows that are named for each allocator and figure
LEAST_S = 0.01  # a program that takes less under the baseline is not named for its time: chance decides it


def ratios(result: Result, peer: str, figure: str) -> dict[str, float]:
    """Program to the median of its ratios to the baseline in the same round, if every run of both was good."""
    found = {}
    for experiment in result.experiments:
        if any(failure.peer == peer for failure in failures_of(experiment)):
            continue
        ours, theirs = (paired.values(experiment, name, figure) for name in (peer, result.baseline))
        each = [ours[n] / theirs[n] for n in ours.keys() & theirs.keys() if ours[n] > 0 and theirs[n] > 0]
        if each:
            found[experiment.workload] = median(each)
    return found


def middle(result: Result, peer: str, figure: str) -> Estimate | None:
    """The middle program's ratio, with its interval over the programs."""
    found = list(ratios(result, peer, figure).values())
    return sequential.middle([log(x) for x in found], sequential.ERROR_RATE) if found else None


def time_figure(result: Result) -> str:
    return next((f for f in TIMES if any(f in e.specs for e in result.experiments)), TIMES[0])


def _figures(result: Result) -> dict[str, str]:
    return {time_figure(result): "time", **MEMORY}


def section(result: Result) -> dict[str, Any]:
    """For the template."""
    names = [p.name for p in result.peers if p.kind != "control" and p.name != control_name(result.baseline)]
    others = [name for name in names if name != result.baseline]
    rounds = sorted({len({s.round for s in e.samples if s.round > 0}) for e in result.experiments})
    spread = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"{rounds[0]}"
    load = float(result.fingerprint.get("load", 0.0))
    figures = _figures(result)
    return {
        "about": f"{cells.moment(result.created)}. {cells.machine(result.fingerprint)}"
        f"{len(result.experiments)} programs, {spread} rounds"
        + f"; {COUNTED[time_figure(result)]}"
        + (f"; other work ran beside it (load {load:.0f}), which widens the times" if load > 1 else ""),
        "command": result.command,
        "grid": grid(
            ["allocator", *figures.values(), *(f"worst in {what}" for what in figures.values())],
            [[name, *_middle(result, name), *_worst(result, name)] for name in others],
        ),
        "failures": "; ".join(_failures(result.experiments)),
    }


def _middle(result: Result, name: str) -> list[str]:
    shown = []
    for figure in _figures(result):
        estimate = middle(result, name, figure)
        shown.append(quantity.ratio_and_span(estimate) if estimate else "-")
    return shown


def _long(result: Result) -> set[str]:
    base = {e.workload: paired.values(e, result.baseline, time_figure(result)).values() for e in result.experiments}
    return {program for program, seconds in base.items() if seconds and min(seconds) >= LEAST_S}


def _worst(result: Result, name: str) -> list[str]:
    shown, long = [], _long(result)
    for figure in _figures(result):
        found = ratios(result, name, figure)
        if figure in TIMES:
            found = {program: value for program, value in found.items() if program in long}
        worst = sorted(found, key=lambda program: -found[program])[:WORST]
        shown.append(", ".join(f"{program} {quantity.ratio(found[program])}" for program in worst))
    return shown


def _failures(experiments: list[Experiment]) -> list[str]:
    found = [failure for experiment in experiments for failure in failures_of(experiment)]
    return [f"{f.peer} in {f.experiment} ({f.times} of {f.of} runs: {cell_text(f.detail or f.status)})" for f in found]
