"""From samples to claims: the table of one experiment, its verdicts, and the sentence that sums it up.

Renderers (terminal, HTML, exports) read these types and compute nothing themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from freestone_lab import statistics
from freestone_lab.model import Experiment, FigureSpec, Peer, Result, Sample, Status
from freestone_lab.statistics import Estimate, Summary, Verdict

AGAIN = " again"  # the baseline's second name: the A/A control


def control_name(baseline: str) -> str:
    """The name under which the baseline runs a second time."""
    return baseline + AGAIN


@dataclass(frozen=True)
class Cell:
    """One figure of one peer in one experiment. `estimate` is None for the baseline and when it cannot be paired."""

    summary: Summary
    estimate: Estimate | None = None
    corrected_p: float = 1.0
    verdict: Verdict = "inconclusive"


@dataclass
class Row:
    """One peer in one experiment: its figures, or why there are none."""

    peer: str
    status: Status  # "ok" when every measured run was; otherwise the commonest failure
    detail: str = ""
    runs: int = 0
    failed: int = 0
    cells: dict[str, Cell] = field(default_factory=dict)


@dataclass
class Table:
    """One experiment, analysed. `floors` maps a figure to the A/A control's relative noise floor."""

    experiment: Experiment
    baseline: str
    rows: list[Row]
    floors: dict[str, float]

    def row(self, peer: str) -> Row | None:
        return next((row for row in self.rows if row.peer == peer), None)


def measured(experiment: Experiment, peer: str) -> list[Sample]:
    """The samples that count: of measured rounds (1 and later), whatever their status."""
    return [s for s in experiment.samples if s.peer == peer and s.round > 0]


def values(experiment: Experiment, peer: str, figure: str) -> dict[int, float]:
    """The figure of every good run of `peer`, by round."""
    return {
        s.round: s.figures[figure]
        for s in experiment.samples
        if s.peer == peer and s.round > 0 and s.status == "ok" and figure in s.figures
    }


def estimate(experiment: Experiment, peer: str, baseline: str, figure: str, seed: int = 0) -> Estimate | None:
    """The paired ratio of `peer` to `baseline` over the rounds in which both ran well."""
    ours, theirs = values(experiment, peer, figure), values(experiment, baseline, figure)
    rounds = sorted(ours.keys() & theirs.keys())
    return statistics.paired_ratio([ours[r] for r in rounds], [theirs[r] for r in rounds], seed)


def _row(experiment: Experiment, peer: str) -> Row:
    samples = [s for s in experiment.samples if s.peer == peer]
    bad = [s for s in samples if s.status != "ok"]
    runs = len(measured(experiment, peer))
    if not bad:
        return Row(peer, "ok", runs=runs)
    status = Counter(s.status for s in bad).most_common(1)[0][0]
    detail = next(s.detail for s in bad if s.status == status)
    return Row(peer, status, detail, runs, len(bad))


def analyse(experiment: Experiment, baseline: str, seed: int = 0) -> Table:
    """Every peer's figures against the baseline. A peer with any failed run keeps its row and has no figures.

    Holm's correction runs over the peers of one figure: the claims that a reader sees side by side.
    """
    peers = list(dict.fromkeys(s.peer for s in experiment.samples))
    again = control_name(baseline)
    rows = [_row(experiment, peer) for peer in peers]
    floors: dict[str, float] = {}
    for figure, spec in experiment.specs.items():
        control = estimate(experiment, again, baseline, figure, seed)
        floors[figure] = statistics.noise_floor(control)
        estimates: dict[str, Estimate] = {}
        for row in rows:
            if row.status == "ok" and row.peer not in (baseline, again):
                found = estimate(experiment, row.peer, baseline, figure, seed)
                if found:
                    estimates[row.peer] = found
        corrected = dict(zip(estimates, statistics.holm([e.p for e in estimates.values()]), strict=True))
        for row in rows:
            figures = values(experiment, row.peer, figure)
            if row.status != "ok" or not figures:
                continue
            summary = statistics.summarise(list(figures.values()))
            if row.peer == again:
                row.cells[figure] = Cell(summary, control)
            elif row.peer in estimates:
                found, p = estimates[row.peer], corrected[row.peer]
                row.cells[figure] = Cell(summary, found, p, statistics.verdict(found, p, floors[figure], spec.better))
            else:
                row.cells[figure] = Cell(summary)
    return Table(experiment, baseline, rows, floors)


def tables(result: Result) -> list[Table]:
    """Every experiment of a result, analysed with the result's own baseline and seed."""
    return [analyse(e, result.baseline, result.seed) for e in result.experiments]


_TIME_UNITS = {"s", "ms", "us", "ns", "cycles"}
_SIZE_UNITS = {"B", "KiB", "MiB", "GiB"}


def verdict_word(verdict: Verdict, spec: FigureSpec) -> str:
    """The verdict in the words of the figure: faster/slower for times and rates, smaller/larger for memory."""
    if verdict in ("same", "inconclusive"):
        return verdict
    good = verdict == "better"
    if spec.unit in _TIME_UNITS or spec.unit.endswith("/s"):
        return "faster" if good else "slower"
    if spec.unit in _SIZE_UNITS:
        return "smaller" if good else "larger"
    return "better" if good else "worse"


def percent(ratio: float) -> str:
    """A ratio as a change: 0.93 is '-7.0 %'."""
    return f"{(ratio - 1) * 100:+.1f} %"


def _claim(row: Row, table: Table, figure: str) -> str:
    cell = row.cells.get(figure)
    spec = table.experiment.specs[figure]
    if cell is None or cell.estimate is None:
        return ""
    e = cell.estimate
    word = verdict_word(cell.verdict, spec)
    if cell.verdict == "inconclusive":
        return f"no difference shown ({percent(e.ratio)}, interval {percent(e.low)} to {percent(e.high)})"
    if cell.verdict == "same":
        return f"the same within {statistics.margin(table.floors[figure]) * 100:.1f} %"
    return f"{word} by {abs(e.ratio - 1) * 100:.1f} % (interval {percent(e.low)} to {percent(e.high)})"


def sentence(table: Table, peers: list[Peer], time: str = "wall", memory: str = "rss") -> str:
    """The verdict on one experiment in one sentence."""
    controls = {p.name for p in peers if p.kind == "control"} | {control_name(table.baseline)}
    rivals = [
        r for r in table.rows if r.peer not in controls and r.peer != table.baseline and r.cells.get(time) is not None
    ]
    failed = [r.peer for r in table.rows if r.status != "ok"]
    tail = f"; failed: {', '.join(failed)}" if failed else ""
    paired = [(r, c.estimate) for r in rivals if (c := r.cells[time]).estimate is not None]
    if not paired:
        return f"no allocator could be compared with {table.baseline}{tail}"
    lower = table.experiment.specs[time].better == "lower"
    best = min(paired, key=lambda pair: (pair[1].ratio if lower else 1 / pair[1].ratio) if pair[1] else math.inf)[0]
    if best.cells[time].verdict == "better":
        head = f"{best.peer} is fastest: {_claim(best, table, time)} against {table.baseline}"
        memory_claim = _claim(best, table, memory) if memory in table.experiment.specs else ""
        if memory_claim:
            head += f", peak memory {memory_claim}"
        close = [
            r.peer
            for r, e in paired
            if r is not best
            and e is not None
            and _overlap(e, best.cells[time].estimate)
            and r.cells[time].verdict == "better"
        ]
        if close:
            head += f"; not told apart from it: {', '.join(close)}"
        return head + tail
    worse = [r.peer for r, _ in paired if r.cells[time].verdict == "worse"]
    head = f"no allocator is faster than {table.baseline} here"
    if worse:
        head += f"; slower: {', '.join(worse)}"
    undecided = [r.peer for r, _ in paired if r.cells[time].verdict == "inconclusive"]
    if undecided:
        head += f"; undecided: {', '.join(undecided)}"
    return head + tail


def _overlap(a: Estimate, b: Estimate | None) -> bool:
    return b is not None and a.low <= b.high and b.low <= a.high
