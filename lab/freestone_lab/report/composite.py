"""The weighted composite: eleven sizes, weighted as programs ask for them, as a percentage over the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from freestone_lab.core.result import control_name
from freestone_lab.report.charts import numbered
from freestone_lab.report.overview import WEIGHTED, ExperimentView, FigureView
from freestone_lab.report.quantity import cost
from freestone_lab.workloads.suites import WEIGHTS


@dataclass(frozen=True)
class Composite:
    """Per allocator: the ratio of costs per size, and the overhead in percent; negative beats the baseline."""

    experiment: str
    sizes: list[int]
    weights: list[float]
    rows: list[tuple[str, float, list[float]]]  # name, overhead in percent, ratio per size; best first
    caveats: list[str]


def composite_table(view: ExperimentView, baseline: str) -> Composite | None:
    """The table, when the experiment is a weighted one and has a time for each of the eleven sizes; None otherwise."""
    if all(figure.name != WEIGHTED for figure in view.figures):
        return None
    for points in numbered(view.figures).values():
        by_size: dict[int, FigureView] = {int(x): f for x, f in points if f.role in ("speed", "latency")}
        if not WEIGHTS.keys() <= by_size.keys():
            continue
        rows = []
        for peer in by_size[16].cells:
            if peer == control_name(baseline):
                continue  # the noise stands elsewhere; as a row it would read like an allocator
            ratios = []
            for size in WEIGHTS:
                figure = by_size[size]
                if peer not in figure.cells or baseline not in figure.cells:
                    break
                own = cost(figure.cells[peer].summary.median, figure.spec)
                base = cost(figure.cells[baseline].summary.median, figure.spec)
                if own is None or base is None:
                    break
                ratios.append(own / base)
            if len(ratios) == len(WEIGHTS):
                overhead = (sum(w * r for w, r in zip(WEIGHTS.values(), ratios, strict=True)) - 1) * 100
                rows.append((peer, overhead, ratios))
        if rows:
            rows.sort(key=lambda row: row[1])
            return Composite(
                view.experiment.id, list(WEIGHTS), list(WEIGHTS.values()), rows, list(view.experiment.caveats)
            )
    return None
