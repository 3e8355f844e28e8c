"""How far each allocator is from the best one of each experiment, and the rows in which one is farthest behind."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import geometric_mean

from freestone_lab.docs.pages import cell_text, grid
from freestone_lab.report import quantity
from freestone_lab.report.overview import Analysis, ExperimentView
from freestone_lab.report.quantity import Role

OURS = "freestone"
LISTED = 12
# The most that a row should cost, as a multiple of the best allocator's, by what a row is about.
BOUNDS: dict[Role, float] = {"speed": 1.25, "memory": 1.4}
TITLES: dict[Role, str] = {"speed": "time", "memory": "memory"}


@dataclass(frozen=True)
class Row:
    """One experiment: each allocator's cost as a multiple of the least, and whose that is."""

    experiment: str
    best: str
    distances: dict[str, float]


def distances(analysis: Analysis, role: Role) -> list[Row]:
    """A row for every experiment with a figure of that role, by medians. Allocators that failed there have none."""
    names = [peer.name for peer in analysis.candidates]
    rows = []
    for view in analysis.experiments:
        costs = _costs(view, role, names)
        if len(costs) > 1:
            best = min(costs, key=lambda name: costs[name])
            rows.append(Row(view.experiment.id, best, {name: cost / costs[best] for name, cost in costs.items()}))
    return rows


def _costs(view: ExperimentView, role: Role, names: Sequence[str]) -> dict[str, float]:
    failed = {failure.peer for failure in view.failures}
    figure = next((f for f in view.figures if f.role == role and f.headline), None)
    if figure is None:
        return {}
    found = {
        name: quantity.cost(figure.cells[name].summary.median, figure.spec)
        for name in names
        if name in figure.cells and name not in failed
    }
    return {name: cost for name, cost in found.items() if cost is not None}


def section(analysis: Analysis) -> dict[str, str] | None:
    """The two tables of the document; None where the result has no row of one of the roles."""
    rows = {role: distances(analysis, role) for role in BOUNDS}
    if not all(rows.values()):
        return None
    names = sorted((peer.name for peer in analysis.candidates), key=lambda name: _mean(rows["speed"], name))
    heads = [x for role, most in BOUNDS.items() for x in (TITLES[role], f"rows above {most:g}", "worst row")]
    lines = [[name, *(cell for role in BOUNDS for cell in _summary(rows[role], name, BOUNDS[role]))] for name in names]
    behind = [[TITLES[role], _farthest(rows[role], BOUNDS[role])] for role in BOUNDS]
    return {"all": grid(["allocator", *heads], lines), "ours": grid(["", f"{OURS} is farthest behind in"], behind)}


def _mean(rows: Sequence[Row], name: str) -> float:
    own = [row.distances[name] for row in rows if name in row.distances]
    return geometric_mean(own) if own else inf


def _summary(rows: Sequence[Row], name: str, most: float) -> list[str]:
    own = [row for row in rows if name in row.distances]
    if not own:
        return ["-", "-", "-"]
    worst = max(own, key=lambda row: row.distances[name])
    above = sum(row.distances[name] > most for row in own)
    return [
        quantity.ratio(_mean(own, name)),
        f"{above} of {len(own)}",
        f"{cell_text(worst.experiment)} {quantity.ratio(worst.distances[name])}",
    ]


def _farthest(rows: Sequence[Row], most: float) -> str:
    own = sorted((row for row in rows if row.distances.get(OURS, 0) > most), key=lambda row: -row.distances[OURS])
    told = [f"{cell_text(row.experiment)} {quantity.ratio(row.distances[OURS])} ({row.best})" for row in own[:LISTED]]
    left = len(own) - len(told)
    return ", ".join(told or ["no row"]) + (f", and {left} more" if left else "")
