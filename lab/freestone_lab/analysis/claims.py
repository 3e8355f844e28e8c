"""From samples to claims: the table of one experiment, its verdicts, and the sentence that sums it up.

Renderers (terminal, HTML, exports) read these types and compute nothing themselves.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from freestone_lab.analysis import inference
from freestone_lab.analysis.inference import Summary, Verdict
from freestone_lab.analysis.paired import error_rate, estimate, judged, measured, values
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import Claim, Experiment, FigureSpec, Result, Status, control_name
from freestone_lab.measure.counts import SPECS as COUNT_SPECS
from freestone_lab.measure.load import PER_REQUEST, RATE
from freestone_lab.measure.samples import PROCESS_SPECS


@dataclass(frozen=True)
class Cell:
    """One figure of one peer in one experiment. `estimate` is None for the baseline and when it cannot be paired."""

    summary: Summary
    estimate: Estimate | None = None
    verdict: Verdict = "inconclusive"
    typical: float = 0.0  # the baseline's median, times the ratio: so it agrees with that


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


def summary_of(experiment: Experiment, peer: str, figure: str) -> Summary | None:
    found = values(experiment, peer, figure)
    return inference.summarise(list(found.values())) if found else None


def table_of(
    experiment: Experiment, baseline: str, order: Sequence[str] = (), controls: Collection[str] = ()
) -> Table:  # fmt: skip
    """Every peer's figures against the baseline. A peer with any failed run keeps its row and has no figures.

    Rows come in `order`, then as they were measured. The intervals of the judged figures hold together, for every two
    allocators. `controls` get ratios and no verdict, and are not part of that family.
    """
    again = control_name(baseline)
    alpha = error_rate(judged([experiment], baseline, controls), bool(experiment.rounds_fixed))
    found = {s.peer for s in experiment.samples}
    peers = dict.fromkeys([*order, *(s.peer for s in experiment.samples)])
    rows = [_row(experiment, peer) for peer in peers if peer in found]
    floors: dict[str, float] = {}
    for figure, spec in experiment.specs.items():
        base = summary_of(experiment, baseline, figure)
        floors[figure] = inference.noise_floor(estimate(experiment, again, baseline, figure, alpha))
        for row in rows:
            summary = summary_of(experiment, row.peer, figure)
            if row.status != "ok" or summary is None:
                continue
            if row.peer == baseline:
                row.cells[figure] = Cell(summary, typical=summary.median)
                continue
            ratio = estimate(experiment, row.peer, baseline, figure, alpha)
            second = partial(estimate, experiment, row.peer, again, figure, alpha)
            control = row.peer in (again, *controls)
            said = "inconclusive" if control else inference.verdict(ratio, floors[figure], spec.better, second)
            typical = base.median * ratio.ratio if base and ratio else summary.median
            row.cells[figure] = Cell(summary, ratio, said, typical)
    return Table(experiment, baseline, rows, floors, frozenset({again, *controls}))


def tables(result: Result) -> list[Table]:
    """Every experiment of a result, analysed with the result's own baseline."""
    order = [p.name for p in result.peers]
    controls = [p.name for p in result.peers if p.kind == "control"]
    return [table_of(e, result.baseline, order, controls) for e in result.experiments]


RESIDENT = ("rss_after", "rss_idle")  # memory of a server
LATENESS_S = 0.05  # by which a load program that lasts a set time starts and ends late
OVER_LIVE = "memory_over_live_mean"
WAITING = 0.2  # a program whose CPU time is a smaller part of its time mostly waits
PRESSED = 0.5  # in that part of the time somebody waited for a CPU: the wait may be for one


def waits(experiment: Experiment) -> bool:
    """Whether the program mostly waits, and not for a CPU: then its CPU time says little about its time."""
    runs = [s for s in experiment.samples if s.round > 0 and s.figures.get("wall") and "cpu" in s.figures]
    if not runs:
        return False
    share = median(s.figures["cpu"] / s.figures["wall"] for s in runs)
    return share < WAITING and median(s.gauges.get("cpu_pressure", 0.0) for s in runs) < PRESSED


def headline(experiment: Experiment) -> list[str]:
    """The figures that a table shows: the workload's weighted, first timed or first one, or else CPU time and time; of
    a server CPU time per request, and requests, or CPU time for a load of fixed work; then memory, over live memory if
    the workload reports that."""
    taken = {name for sample in experiment.samples for name in sample.figures}
    specs = {name: spec for name, spec in experiment.specs.items() if name in taken or not taken}
    if experiment.judged:
        return [name for name in experiment.judged if name in specs]
    if PER_REQUEST in specs:  # a server: its load may be what bounds the requests
        return [PER_REQUEST, RATE, memory_figure(experiment)]
    process = (*PROCESS_SPECS, *COUNT_SPECS, *RESIDENT)
    own = [n for n, s in specs.items() if n not in process and not n.startswith("process_") and s.better != "neither"]
    # A sweep reports `pair_ns` for the whole and `pair_ns_size_64` for one point of it.
    whole = [n for n in own if not any(n.startswith(o + "_") and n[-1].isdigit() for o in own if o != n)]
    weighted = [n for n in whole if n.startswith("weighted")]
    timed = [n for n in whole if verdict_word("better", specs[n]) == "faster"]
    times = ["wall", "cpu"] if waits(experiment) else ["cpu", "wall"]
    chosen = (weighted or timed or whole)[:1] or [n for n in times if n in specs]
    return [*chosen, *(n for n in [memory_figure(experiment)] if n in specs)]


def lasts_a_time(experiment: Experiment) -> bool:
    """Whether a server's load lasts whole seconds and does not say what it got done: then its times say nothing."""
    if RESIDENT[0] not in experiment.specs or PER_REQUEST in experiment.specs:
        return False
    walls = [s.figures["wall"] for s in experiment.samples if s.round > 0 and "wall" in s.figures]
    late = [wall - round(median(walls)) for wall in walls]
    return bool(late) and min(late) >= 0 and max(late) < LATENESS_S and min(walls) >= 1


def memory_figure(experiment: Experiment) -> str:
    return OVER_LIVE if OVER_LIVE in experiment.specs and not experiment.judged else "rss"


def judged_times(experiment: Experiment) -> tuple[str, ...]:
    """Of these, the figures of time that decide. CPU time does not where the program mostly waits."""
    times = [n for n in headline(experiment) if n != memory_figure(experiment)]
    return tuple(times[:1] if waits(experiment) and "cpu" in times else times)


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


def change(estimate: Estimate) -> str:
    """`-12.3 % (-14.0 … -10.5)`; without brackets while nothing is known."""
    if not estimate.is_known:
        return percent(estimate.ratio)
    return f"{percent(estimate.ratio)} ({percent(estimate.low)[:-2]} … {percent(estimate.high)[:-2]})"


def spoken(analysed: Sequence[Table]) -> list[Claim]:
    """The claims of a result file, from its tables."""
    return [
        Claim(
            table.experiment.id, row.peer, figure, e.ratio, e.low if e.is_known else None,
            e.high if e.is_known else None, e.pairs, cell.verdict,
        )
        for table in analysed
        for row in table.rows
        for figure, cell in row.cells.items()
        if figure in headline(table.experiment) and (e := cell.estimate) is not None and row.peer not in table.controls
    ]  # fmt: skip
