"""The samples of one experiment that count, and the ratio of two peers over the rounds that they share."""

import math
from collections.abc import Collection, Mapping, Sequence

from freestone_lab.analysis import sequential
from freestone_lab.analysis.sequential import ERROR_RATE, Estimate
from freestone_lab.core.result import Experiment, Sample, control_name

FIGURES_JUDGED = 3  # CPU time, time and memory
SPENT_FIRST = 0.8  # of the error rate, on pairs with the baseline


def measured(experiment: Experiment, peer: str) -> list[Sample]:
    """The samples that count: those of measured rounds (1 and later), whatever their status."""
    return [s for s in experiment.samples if s.peer == peer and s.round > 0]


def values(experiment: Experiment, peer: str, figure: str) -> dict[int, float]:
    """The figure of every good run of `peer`, by round."""
    return {
        s.round: s.figures[figure]
        for s in experiment.samples
        if s.peer == peer and s.round > 0 and s.status == "ok" and figure in s.figures
    }


def good_runs(experiment: Experiment) -> dict[str, dict[int, dict[str, float]]]:
    """The figures of every good run, by allocator and round: what `values` finds, for who asks often."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for s in experiment.samples:
        if s.round > 0 and s.status == "ok":
            found.setdefault(s.peer, {})[s.round] = s.figures
    return found


def judged(experiments: Sequence[Experiment], baseline: str, controls: Collection[str]) -> list[str]:
    """The allocators whose figures are compared, the baseline first."""
    out = {baseline, control_name(baseline), *controls}
    return [baseline, *dict.fromkeys(s.peer for e in experiments for s in e.samples if s.peer not in out)]


def error_rate(names: Collection[str], fixed: bool = False, of_rivals: bool = False) -> float:
    """Of one interval, if all are to hold together: those of the judged figures, of every two of these allocators.

    Most of it is for the rivals of the baseline, which users ask about; `of_rivals` gives that of two of them. Where
    the number of rounds was fixed before, only the rivals of the baseline in one figure are counted.
    """
    rivals = max(1, len(names) - 1)
    if fixed:
        return ERROR_RATE / rivals
    if of_rivals:
        return (1 - SPENT_FIRST) * ERROR_RATE / (FIGURES_JUDGED * max(1, rivals * (rivals - 1) // 2))
    return (SPENT_FIRST if rivals > 1 else 1) * ERROR_RATE / (FIGURES_JUDGED * rivals)


def ratio(other: Sequence[float], to: Sequence[float], alpha: float, fixed: bool = False) -> Estimate | None:
    """The ratio of pairs of positive values. None with fewer than two pairs, or a value <= 0.

    `fixed` says that their number was fixed before the first run.
    """
    if len(other) != len(to):
        raise ValueError(f"{len(other)} and {len(to)} values are not pairs")
    if len(other) < 2 or min(*other, *to) <= 0:
        return None
    logs = [math.log(a / b) for a, b in zip(other, to, strict=True)]
    return (sequential.of_fixed_rounds if fixed else sequential.estimate)(logs, alpha)


def estimate(experiment: Experiment, peer: str, to: str, figure: str, alpha: float = ERROR_RATE) -> Estimate | None:
    """The paired ratio of `peer` to another over the rounds in which both ran well."""
    ours, theirs = values(experiment, peer, figure), values(experiment, to, figure)
    return of_rounds(ours, theirs, alpha, bool(experiment.rounds_fixed))


def of_rounds(ours: Mapping[int, float], theirs: Mapping[int, float], alpha: float, fixed: bool) -> Estimate | None:
    """The same of figures by round."""
    rounds = sorted(ours.keys() & theirs.keys())
    return ratio([ours[r] for r in rounds], [theirs[r] for r in rounds], alpha, fixed)
