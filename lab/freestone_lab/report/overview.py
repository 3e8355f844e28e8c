"""What the report shows, gathered: every figure's cells, the failures, and the overall ratios per criterion.

`analysis/claims.py` analyses single experiments, `analysis/inference.py` makes every claim. Added
here is the overall view: a *cost* (see `quantity.cost`) per round, averaged geometrically over figures, experiments and
workloads, and compared in pairs like any other figure; below 1 is better. So a pair is always a round, and the ratio is
the geometric mean over these workloads.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from freestone_lab.analysis import claims, inference, paired
from freestone_lab.analysis.claims import Cell, Table
from freestone_lab.analysis.inference import Verdict
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, control_name
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.report.quantity import Role, cost, role
from freestone_lab.workloads import suites

NULL_PEER = "null"
WEIGHTED = "weighted"
OWN_PEAK = "peak_rss"
ROLES: tuple[Role, ...] = ("speed", "latency", "memory")


@dataclass(frozen=True)
class Failure:
    """An allocator that did not finish an experiment in some runs, and why."""

    experiment: str
    peer: str
    status: str
    detail: str
    times: int
    of: int


@dataclass(frozen=True)
class FigureView:
    """One figure under every allocator but the null allocator, whose median stands in `null`."""

    name: str
    spec: FigureSpec
    role: Role
    cells: dict[str, Cell]
    floor: float  # the A/A control's relative noise floor; infinite without one
    headline: bool  # counts in the overall ratios
    null: float | None = None
    null_absent: str = ""  # why there is no `null`, where that is known
    observations: int | None = None  # what the workload counted behind one run's figure
    shown: bool = False  # has its table without being asked for


@dataclass(frozen=True)
class ExperimentView:
    experiment: Experiment
    table: Table
    figures: list[FigureView]
    failures: list[Failure]
    counted: dict[str, dict[str, float]]  # figure to allocator to value: counted once, in a run of its own


@dataclass(frozen=True)
class Overall:
    """One allocator's cost over the experiments that it finished, as a ratio to the baseline's; 1 for the baseline."""

    ratio: float
    estimate: Estimate | None
    verdict: Verdict | None  # None for the baseline
    experiments: int
    of: int

    @property
    def complete(self) -> bool:
        return self.experiments == self.of


@dataclass(frozen=True)
class Analysis:
    result: Result
    candidates: list[Peer]  # what a user may choose, the baseline first among them
    controls: list[Peer]
    experiments: list[ExperimentView]
    failures: list[Failure]
    overall: dict[Role, dict[str, Overall]]
    floors: dict[Role, float]  # the noise floor of the overall ratios; infinite without an A/A control
    rounds: int  # the most that any experiment has
    fewest_rounds: int  # and the fewest: what the overall ratios rest on
    alpha: float  # the error rate of one interval of a pair with the baseline, where all are to hold together
    rivals_alpha: float  # and of any other pair
    rounds_fixed: bool = False  # before the first run, of every experiment

    @property
    def failed(self) -> set[str]:
        return {failure.peer for failure in self.failures}

    @property
    def unmeasured(self) -> list[str]:
        """The allocators that there was no time for somewhere. While there are any, nobody is ranked."""
        left = {name for v in self.experiments for name in v.experiment.not_run}
        return [p.name for p in self.candidates if p.name in left]

    @property
    def ranked(self) -> dict[Role, dict[str, Overall]]:
        """Only allocators that finished everything without a failure may win; nobody, where some were not measured."""
        if self.unmeasured:
            return {}
        return {
            wanted: {n: s for n, s in scores.items() if s.complete and n not in self.failed}
            for wanted, scores in self.overall.items()
        }


def failures_of(experiment: Experiment) -> list[Failure]:
    """The failed runs of an experiment, warm-up included, equal reasons folded together."""
    runs = Counter(sample.peer for sample in experiment.samples)
    bad = Counter((s.peer, s.status, s.detail) for s in experiment.samples if s.status != "ok")
    return [Failure(experiment.id, p, status, detail, n, runs[p]) for (p, status, detail), n in bad.items()]


def swept(name: str, others: Iterable[str]) -> str | None:
    """The figure that `name` is one point of: `pair_ns` for `pair_ns_size_64`; None when it stands for itself."""
    found = re.fullmatch(r"(.+)_[a-z]+_\d+", name)
    return found[1] if found and found[1] in others else None


def headlines(experiment: Experiment) -> set[str]:
    """The figures that speak for an experiment in the overall ratios.

    Time: the workload's weighted figure or the first that it names, and the process's own time where it is no workload.
    Latency: every percentile. Memory: the peak resident memory, as the workload reports it or as seen from outside.
    """
    specs = experiment.specs
    if experiment.judged:
        return {claims.judged_times(experiment)[0], claims.memory_figure(experiment)}
    own = {n: role(n, spec) for n, spec in specs.items() if n not in PROCESS_SPECS and not n.startswith("process_")}
    own = {n: kind for n, kind in own.items() if swept(n, own) is None}
    found = {name for name, kind in own.items() if kind == "latency"}
    speeds = [name for name, kind in own.items() if kind == "speed"]
    if speeds:
        found.add(WEIGHTED if WEIGHTED in speeds else speeds[0])
    elif not any(kind != "other" for kind in own.values()):
        found.update(claims.judged_times(experiment)[:1])
    found.add(OWN_PEAK if OWN_PEAK in own else "rss")
    return found


def null_absence(experiment: Experiment, peers: Iterable[Peer]) -> str:
    """Why an experiment has no figures of the null allocator, although that was among the peers; "" otherwise."""
    if all(p.name != NULL_PEER for p in peers):
        return ""
    runs = [s for s in experiment.samples if s.peer == NULL_PEER]
    failed = next((s.status for s in runs if s.status != "ok"), "")
    needs = suites.NULL_GIB.get(experiment.id, 0.0)
    return failed if runs else f"would need {needs:g} GiB" if needs > suites.MOST_NULL_GIB else "not run"


def experiment_view(experiment: Experiment, table: Table, peers: Iterable[Peer] = ()) -> ExperimentView:
    figures = []
    main, shown = headlines(experiment), claims.headline(experiment)
    absent = null_absence(experiment, peers)
    for name, spec in experiment.specs.items():
        cells = {row.peer: row.cells[name] for row in table.rows if name in row.cells}
        null = cells.pop(NULL_PEER, None)
        counts = [s.counts[name] for s in experiment.samples if name in s.counts]
        if cells or null:
            figures.append(
                FigureView(
                    name,
                    spec,
                    role(name, spec),
                    cells,
                    table.floors.get(name, math.inf),
                    name in main,
                    null.summary.median if null else None,
                    "" if null else absent,
                    min(counts) if counts else None,
                    name in main or name in shown,
                )
            )
    counted: dict[str, dict[str, float]] = {}
    for sample in experiment.samples:
        if sample.round < 0 and sample.status == "ok":
            for name, value in sample.figures.items():
                counted.setdefault(name, {})[sample.peer] = value
    return ExperimentView(experiment, table, figures, failures_of(experiment), counted)


def composite(views: Iterable[ExperimentView], wanted: Role, peer: str) -> dict[str, dict[int, float]]:
    """Experiment to round to the geometric mean of the costs of `wanted`; rounds that lack a figure are left out."""
    found: dict[str, dict[int, float]] = {}
    for view in views:
        figures = [f for f in view.figures if f.role == wanted and f.headline]
        if not figures or any(failure.peer == peer for failure in view.failures):
            continue
        per_round: dict[int, float] = {}
        for sample in paired.measured(view.experiment, peer):
            found_costs = [cost(sample.figures.get(f.name, math.nan), f.spec) for f in figures]
            logs = [math.log(c) for c in found_costs if c is not None]
            if len(logs) == len(figures):
                per_round[sample.round] = math.exp(sum(logs) / len(logs))
        if per_round:
            found[view.experiment.id] = per_round
    return found


def fold(per_experiment: Mapping[str, Mapping[int, float]], weights: Mapping[str, float]) -> dict[int, float]:
    """One value per round: the weighted geometric mean over experiments, for the rounds that all of them have."""
    if not per_experiment:
        return {}
    rounds = set.intersection(*(set(v) for v in per_experiment.values()))
    total = sum(weights[e] for e in per_experiment)
    return {
        n: math.exp(sum(weights[e] * math.log(v[n]) for e, v in per_experiment.items()) / total) for n in sorted(rounds)
    }


def workload_weights(views: list[ExperimentView]) -> dict[str, float]:
    """Experiment to weight; the weights of one workload add up to one."""
    members = Counter(view.experiment.workload for view in views)
    return {v.experiment.id: 1 / members[v.experiment.workload] for v in views}


def pair(
    analysis: Analysis, wanted: Role, peer: str, to: str, views: list[ExperimentView] | None = None
) -> tuple[Estimate | None, float | None, int]:
    """The overall ratio of `peer` to another: the estimate, the bare ratio when one pair must do, experiments.

    `views` stands for some of the experiments.
    """
    views = analysis.experiments if views is None else views
    left, right = composite(views, wanted, peer), composite(views, wanted, to)
    shared = left.keys() & right.keys()
    weights = workload_weights(views)
    ours = fold({e: left[e] for e in right if e in shared}, weights)
    theirs = fold({e: right[e] for e in right if e in shared}, weights)
    pairs = sorted(ours.keys() & theirs.keys())
    if not pairs:
        return None, None, len(shared)
    found = [ours[n] for n in pairs], [theirs[n] for n in pairs]
    alpha = analysis.alpha if analysis.result.baseline in (peer, to) else analysis.rivals_alpha
    estimate = paired.ratio(*found, alpha, analysis.rounds_fixed)
    return estimate, estimate.ratio if estimate else ours[pairs[0]] / theirs[pairs[0]], len(shared)


def overall_scores(analysis: Analysis, wanted: Role) -> tuple[dict[str, Overall], float]:
    """Allocator to overall ratio in one role, and the noise floor."""
    base = analysis.result.baseline
    whole = len(composite(analysis.experiments, wanted, base))
    if not whole:
        return {}, math.inf
    again = control_name(base)
    floor = inference.noise_floor(pair(analysis, wanted, again, base)[0])
    scores = {base: Overall(1.0, None, None, whole, whole)}
    for name in (p.name for p in analysis.candidates if p.name != base):
        estimate, ratio, shared = pair(analysis, wanted, name, base)
        if ratio is not None:
            verdict = inference.verdict(estimate, floor, "lower", partial(_estimate, analysis, wanted, name, again))
            scores[name] = Overall(ratio, estimate, verdict, shared, whole)
    return scores, floor


def _estimate(analysis: Analysis, wanted: Role, peer: str, to: str) -> Estimate | None:
    return pair(analysis, wanted, peer, to)[0]


def analyse(result: Result, tables: Sequence[Table] | None = None) -> Analysis:
    """Everything that the report says about one result file; `tables` are its own, where the caller has them."""
    found = claims.tables(result) if tables is None else tables
    views = [experiment_view(t.experiment, t, result.peers) for t in found]
    again = control_name(result.baseline)
    controls = [p for p in result.peers if p.name != result.baseline and (p.kind == "control" or p.name == again)]
    candidates = sorted((p for p in result.peers if p not in controls), key=lambda p: p.name != result.baseline)
    rounds = [len({s.round for s in e.samples if s.round > 0}) for e in result.experiments] or [0]
    fixed = all(e.rounds_fixed for e in result.experiments)
    names = paired.judged(result.experiments, result.baseline, [p.name for p in controls])
    alpha = paired.error_rate(names, fixed), paired.error_rate(names, fixed, True)
    failures = [f for v in views for f in v.failures]
    found_all = Analysis(
        result, candidates, controls, views, failures, {}, {}, max(rounds), min(rounds), *alpha, fixed
    )  # fmt: skip
    for wanted in ROLES:
        scores, floor = overall_scores(found_all, wanted)
        if scores:
            found_all.overall[wanted], found_all.floors[wanted] = scores, floor
    return found_all
