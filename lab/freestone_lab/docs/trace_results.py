"""The section of docs/BENCHMARKS.md about recorded programs, made from what `freestone bench traces` stored."""

from math import exp, log
from statistics import fmean, median
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
LEAST_S = 0.01  # the time of a program that takes less under the baseline does not count: chance decides it


def _paired_logs(result: Result, peer: str, figure: str) -> dict[str, dict[int, float]]:
    """Program to round to the logarithm of the ratio to the baseline, if every run of both was good and positive.

    Of the time only programs that take LEAST_S.
    """
    found = {}
    for experiment in result.experiments:
        ours, theirs = (paired.values(experiment, name, figure) for name in (peer, result.baseline))
        rounds = ours.keys() & theirs.keys()
        failed = not rounds or any(failure.peer == peer for failure in failures_of(experiment))
        if failed or min(*ours.values(), *theirs.values()) <= 0:
            continue
        if figure not in TIMES or min(theirs.values()) >= LEAST_S:
            found[experiment.workload] = {n: log(ours[n] / theirs[n]) for n in rounds}
    return found


def ratios(result: Result, peer: str, figure: str) -> dict[str, float]:
    """Program to the median of its ratios to the baseline in the same round."""
    return {program: exp(median(logs.values())) for program, logs in _paired_logs(result, peer, figure).items()}


def over_programs(result: Result, peer: str, figure: str) -> tuple[Estimate, int] | None:
    """The geometric mean over the programs, from the rounds that all of them have, and how many programs these are."""
    found = _paired_logs(result, peer, figure)
    if not found:
        return None
    rounds = sorted(set.intersection(*(set(logs) for logs in found.values())))
    means = [fmean(logs[n] for logs in found.values()) for n in rounds]
    rivals = [p.name for p in result.peers if p.kind != "control"]
    return sequential.of_fixed_rounds(means, paired.error_rate(rivals, True)), len(found)


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
            [[name, *_means(result, name), *_worst(result, name)] for name in others],
        ),
        "failures": "; ".join(_failures(result.experiments)),
    }


def _means(result: Result, name: str) -> list[str]:
    shown = []
    for figure in _figures(result):
        found = over_programs(result, name, figure)
        shown.append(f"{quantity.ratio_and_span(found[0])} of {found[1]}" if found else "-")
    return shown


def _worst(result: Result, name: str) -> list[str]:
    shown = []
    for figure in _figures(result):
        found = ratios(result, name, figure)
        worst = sorted(found, key=lambda program: -found[program])[:WORST]
        shown.append(", ".join(f"{program} {quantity.ratio(found[program])}" for program in worst))
    return shown


def _failures(experiments: list[Experiment]) -> list[str]:
    found = [failure for experiment in experiments for failure in failures_of(experiment)]
    return [f"{f.peer} in {f.experiment} ({f.times} of {f.of} runs: {cell_text(f.detail or f.status)})" for f in found]
