"""From samples to claims: the table of one experiment, its verdicts, and the sentence that sums it up.

Renderers (terminal, HTML, exports) read these types and compute nothing themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from freestone_lab.analysis import inference
from freestone_lab.analysis.inference import Summary, Verdict
from freestone_lab.analysis.paired import error_rate, estimate, judged, measured, values
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import Experiment, FigureSpec, Result, Status, control_name
from freestone_lab.measure.counts import SPECS as COUNT_SPECS
from freestone_lab.measure.samples import PROCESS_SPECS


@dataclass(frozen=True)
class Cell:
    """One figure of one peer in one experiment. `estimate` is None for the baseline and when it cannot be paired."""

    summary: Summary
    estimate: Estimate | None = None
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
    counts: dict[str, float] = field(default_factory=dict)  # of the separate counting passes: one value, no interval


@dataclass
class Table:
    """One experiment, analysed. `floors` maps a figure to the A/A control's relative noise floor."""

    experiment: Experiment
    baseline: str
    rows: list[Row]
    floors: dict[str, float]
    controls: frozenset[str] = frozenset()  # rows that are measured and not judged

    def row(self, peer: str) -> Row | None:
        return next((row for row in self.rows if row.peer == peer), None)


def _row(experiment: Experiment, peer: str) -> Row:
    samples = [s for s in experiment.samples if s.peer == peer]
    bad = [s for s in samples if s.status != "ok"]
    runs = len(measured(experiment, peer))
    if not bad:
        counted = {name: value for s in samples if s.round < 0 for name, value in s.figures.items()}
        return Row(peer, "ok", runs=runs, counts=counted)
    status = Counter(s.status for s in bad).most_common(1)[0][0]
    detail = next(s.detail for s in bad if s.status == status)
    return Row(peer, status, detail, runs, len(bad))


def table_of(
    experiment: Experiment, baseline: str, order: Sequence[str] = (), controls: Collection[str] = ()
) -> Table:  # fmt: skip
    """Every peer's figures against the baseline. A peer with any failed run keeps its row and has no figures.

    Rows come in `order`, then as they were measured. The intervals of the judged figures hold together, for every two
    allocators. `controls` get ratios and no verdict, and are not part of that family.
    """
    again = control_name(baseline)
    alpha = error_rate(judged([experiment], baseline, controls))
    found = {s.peer for s in experiment.samples}
    peers = dict.fromkeys([*order, *(s.peer for s in experiment.samples)])
    rows = [_row(experiment, peer) for peer in peers if peer in found]
    floors: dict[str, float] = {}
    for figure, spec in experiment.specs.items():
        floors[figure] = inference.noise_floor(estimate(experiment, again, baseline, figure, alpha))
        for row in rows:
            figures = values(experiment, row.peer, figure)
            if row.status != "ok" or not figures:
                continue
            summary = inference.summarise(list(figures.values()))
            if row.peer == baseline:
                row.cells[figure] = Cell(summary)
                continue
            ratio = estimate(experiment, row.peer, baseline, figure, alpha)
            second = partial(estimate, experiment, row.peer, again, figure, alpha)
            control = row.peer in (again, *controls)
            said = "inconclusive" if control else inference.verdict(ratio, floors[figure], spec.better, second)
            row.cells[figure] = Cell(summary, ratio, said)
    return Table(experiment, baseline, rows, floors, frozenset({again, *controls}))


def tables(result: Result) -> list[Table]:
    """Every experiment of a result, analysed with the result's own baseline."""
    order = [p.name for p in result.peers]
    controls = [p.name for p in result.peers if p.kind == "control"]
    return [table_of(e, result.baseline, order, controls) for e in result.experiments]


OVER_LIVE = "memory_over_live_mean"


def headline(experiment: Experiment) -> list[str]:
    """The figures that a table shows: the workload's weighted, first timed or first one, or else the time; then memory,
    over live memory if the workload reports that."""
    process = (*PROCESS_SPECS, *COUNT_SPECS)
    specs = experiment.specs
    own = [n for n, s in specs.items() if n not in process and not n.startswith("process_") and s.better != "neither"]
    # A sweep reports `pair_ns` for the whole and `pair_ns_size_64` for one point of it.
    whole = [n for n in own if not any(n.startswith(o + "_") and n[-1].isdigit() for o in own if o != n)]
    weighted = [n for n in whole if n.startswith("weighted")]
    timed = [n for n in whole if verdict_word("better", specs[n]) == "faster"]
    chosen = (weighted or timed or whole)[:1] or [n for n in ("wall",) if n in specs]
    memory = [n for n in (OVER_LIVE, "rss") if n in specs][:1]
    return [*chosen, *memory]


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


def superlative(spec: FigureSpec) -> str:
    """What the winner of a figure is called."""
    return {"faster": "fastest", "smaller": "smallest"}.get(verdict_word("better", spec), "best")


def percent(ratio: float) -> str:
    """A ratio as a change: 0.93 is '-7.0 %'."""
    return f"{(ratio - 1) * 100:+.1f} %"


def change(cell: Cell, spec: FigureSpec) -> str:
    """A cell's difference in words: '7.0 % less time (95 % interval 6.1 to 8.2 % less)'; "" without an estimate."""
    e = cell.estimate
    if e is None:
        return ""
    noun = spec.label or spec.unit

    def words(ratio: float) -> str:
        return f"{abs(ratio - 1) * 100:.1f} % {'less' if ratio < 1 else 'more'}"

    if (e.low < 1) == (e.high < 1):
        ends = sorted((abs(e.low - 1) * 100, abs(e.high - 1) * 100))
        interval = f"{ends[0]:.1f} to {ends[1]:.1f} % {'less' if e.high < 1 else 'more'}"
    else:
        interval = f"{words(e.low)} to {words(e.high)}"
    return f"{words(e.ratio)} {noun} (95 % interval {interval})"


def sentence(table: Table) -> str:
    """The verdict on one experiment's first headline figure in one sentence."""
    time = headline(table.experiment)[0]
    rows = [r for r in table.rows if r.peer not in table.controls and r.peer != table.baseline]
    failed = [r.peer for r in rows if r.status != "ok"]
    tail = f"; failed, with no figures: {', '.join(failed)}" if failed else ""
    paired = [(r, c, c.estimate) for r in rows if (c := r.cells.get(time)) is not None and c.estimate is not None]
    if not paired:
        return f"no allocator could be compared with {table.baseline}{tail}"
    spec = table.experiment.specs[time]
    ahead = [p for p in paired if p[1].verdict == "better"]
    if not ahead:
        word = verdict_word("better", spec)
        return f"no allocator is shown to be {word} than {table.baseline}{_rest(paired, spec)}{tail}"
    row, cell, _ = min(ahead, key=lambda p: p[2].ratio if spec.better == "lower" else -p[2].ratio)
    head = f"{row.peer} is the {superlative(spec)}: {change(cell, spec)} than {table.baseline}"
    memory = headline(table.experiment)[-1]
    if memory in row.cells and row.cells[memory].verdict != "inconclusive":
        head += f", and {change(row.cells[memory], table.experiment.specs[memory])}"
    behind = shown_behind(table, row.peer, [r.peer for r, _, _ in paired if r is not row], time)
    close = [r.peer for r, _, _ in paired if r is not row and r.peer not in behind]
    return head + (f"; not told apart from it: {', '.join(close)}" if close else "") + tail


def shown_behind(table: Table, best: str, others: Sequence[str], figure: str) -> set[str]:
    """The members of `others` that are worse than `best` by the rules of every other claim."""
    alpha = error_rate([row.peer for row in table.rows if row.peer not in table.controls])
    floor, better = table.floors[figure], table.experiment.specs[figure].better
    ratios = {o: estimate(table.experiment, o, best, figure, alpha) for o in others}
    return {o for o, e in ratios.items() if inference.verdict(e, floor, better) == "worse"}


def _rest(paired: Sequence[tuple[Row, Cell, Estimate]], spec: FigureSpec) -> str:
    text = ""
    verdicts: tuple[Verdict, ...] = ("same", "worse", "inconclusive")
    for verdict in verdicts:
        names = [r.peer for r, c, _ in paired if c.verdict == verdict]
        if names:
            text += f"; {verdict_word(verdict, spec)}: {', '.join(names)}"
    return text
