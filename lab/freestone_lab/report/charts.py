"""The drawings of figures over a parameter.

Nothing here knows a workload by name. Figures whose names end in a number become a curve over that number. Experiments
of one workload that differ in a number become a curve over it, one drawing per value of the other parameters.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from freestone_lab.core.result import FigureSpec
from freestone_lab.report import plots
from freestone_lab.report.overview import Analysis, ExperimentView, FigureView, swept
from freestone_lab.report.plots import Curve, Look
from freestone_lab.report.quantity import BYTES, SECONDS, rate_unit, show, size_label, words

SIZE = re.compile(r"size|bytes", re.IGNORECASE)
NUMBERED = re.compile(r"^(?P<head>.*?)[_/. =-]?(?P<number>\d+)(?P<tail>[_/. ]?(b|bytes)?)$", re.IGNORECASE)
MANY_CURVES = 6  # with more of them, quartile bands would cover each other
MOST_MARKERS = 120  # beyond it, dash and colour tell the curves apart
FEWEST_POINTS = 3
MOST_ROUNDS = 200  # dots drawn per allocator


@dataclass(frozen=True)
class Chart:
    """One drawing with its heading, the allocators in it, and what must be read with it."""

    title: str
    draw: Callable[[bool], str]  # with a legend inside, or without
    peers: list[str]
    caveats: list[str]
    note: str = ""


def worth_a_sweep(figure: FigureView) -> bool:
    """Of a swept workload's many figures: the main one, the median and the tail of latencies, the peak memory."""
    return figure.headline and (figure.role != "latency" or figure.name.endswith(("_p50", "_p99", "_p99_9")))


def numbered(figures: list[FigureView]) -> dict[tuple[str, str], list[tuple[float, FigureView]]]:
    """Figures that differ only in a number within their names, grouped: (name without it, unit) to sorted points."""
    groups: dict[tuple[str, str], list[tuple[float, FigureView]]] = {}
    for figure in figures:
        match = NUMBERED.match(figure.name)
        if match and not re.search(r"(^|[_./])p$", match["head"]):  # a percentile is not a sweep
            groups.setdefault((match["head"], figure.spec.unit), []).append((float(match["number"]), figure))
    return {key: sorted(g, key=lambda p: p[0]) for key, g in groups.items() if len(g) >= FEWEST_POINTS}


def figure_charts(view: ExperimentView, looks: dict[str, Look]) -> list[Chart]:
    """A curve for every family of numbered figures inside one experiment."""
    charts = []
    figures = {f.name: f for f in view.figures}
    for (head, _), points in numbered([f for f in view.figures if f.role in ("speed", "latency")]).items():
        whole = swept(points[0][1].name, figures)
        if whole and not worth_a_sweep(figures[whole]):
            continue
        top = max(x for x, _ in points)
        axis = "size" if top > 128 or SIZE.search(head) else "threads" if "thread" in head else "n"
        name = whole or (head.removesuffix("_threads") if axis == "threads" else head)
        settings = [setting_words(k, v) for k, v in view.experiment.params.items() if k == "threads" != axis]
        title = ", ".join([words(name) or words(view.experiment.workload), *settings])
        chart = sweep_chart(title, axis, points, looks, view.experiment.caveats)
        if chart:
            charts.append(chart)
    return charts


def sweep_chart(
    title: str, axis: str, points: list[tuple[float, FigureView]], looks: dict[str, Look], caveats: list[str]
) -> Chart | None:
    """One figure against a parameter, a curve per allocator with its quartile band."""
    spec: FigureSpec = points[0][1].spec
    scale, unit = axis_unit([c.summary.median for _, f in points for c in f.cells.values()], spec.unit)
    curves = []
    for peer, look in looks.items():
        found = [(x, f.cells[peer]) for x, f in points if peer in f.cells]
        if len(found) < 2:
            continue
        curves.append(
            Curve(
                peer,
                look,
                [x for x, _ in found],
                [c.summary.median * scale for _, c in found],
                [c.summary.q1 * scale for _, c in found],
                [c.summary.q3 * scale for _, c in found],
            )
        )
    if not curves:
        return None
    if len(curves) > MANY_CURVES:
        curves = [Curve(c.name, c.look, c.x, c.y) for c in curves]
    return sweep_drawing(title, axis, curves, unit, spec, caveats)


def sweep_drawing(title: str, axis: str, curves: list[Curve], unit: str, spec: FigureSpec, caveats: list[str]) -> Chart:
    xs = sorted({x for c in curves for x in c.x})
    ys = [y for c in curves for y in c.y]
    is_size = axis == "size"
    wide = xs[0] > 0 and xs[-1] >= 8 * xs[0]
    direction = {"lower": "lower is better", "higher": "higher is better"}.get(spec.better, "")
    title = title[:1].upper() + title[1:]
    draw = partial(
        plots.lines,
        curves,
        "block size" if is_size else axis,
        unit,
        f"{title} by {axis}",
        log_x=wide,
        log_y=min(ys) > 0 and max(ys) > 20 * min(ys),
        show_x=size_label if is_size else (lambda v: f"{v:g}"),
        x_ticks=plots.size_ticks(xs[0], xs[-1], 5) if is_size and wide else every(xs, 8),
        floor=True,
        markers=len(curves) * len(xs) <= MOST_MARKERS,
    )
    named = title if "," in title else f"{title} by {axis}"
    return Chart(named, lambda legend: draw(legend=legend), [c.name for c in curves], caveats, direction)


def every(xs: list[float], most: int) -> list[float]:
    stride = -(-len(xs) // most)
    return xs[::stride]


def axis_unit(values: list[float], unit: str) -> tuple[float, str]:
    """A factor and a unit that keep the axis' numbers short."""
    middle = median(values) if values else 1.0
    if unit in SECONDS or unit in BYTES:
        table = SECONDS if unit in SECONDS else BYTES
        shown = show(middle, unit).split()[-1]
        key = "us" if shown == "µs" else shown
        return table[unit] / table[key], shown
    if unit.endswith("/s"):
        times, what = rate_unit(unit)
        shown = "" if what == "/s" else what.removesuffix("/s") + " "
        for name, size in (("million ", 1e6), ("thousand ", 1e3)):
            if middle * times >= size:
                return times / size, f"{name}{shown}per second"
        return times, f"{shown}per second"
    return 1.0, unit


def sweeps(analysis: Analysis, looks: dict[str, Look]) -> dict[str, list[Chart]]:
    """Workload to the curves over the parameters in which its experiments differ."""
    by_workload: dict[str, list[ExperimentView]] = {}
    for view in analysis.experiments:
        by_workload.setdefault(view.experiment.workload, []).append(view)
    charts: dict[str, list[Chart]] = {}
    for workload, views in by_workload.items():
        moving = varying([v.experiment.params for v in views])
        least = {"threads": 2}  # points
        axes = [name for name in moving if len(moving[name]) >= least.get(name, FEWEST_POINTS)]
        for axis in axes:
            drawn = sweep(views, workload, axis, looks)
            charts.setdefault(workload, []).extend(drawn)
    return charts


def varying(params: list[dict[str, Any]]) -> dict[str, set[float]]:
    """The numeric parameters that take more than one value, with their values."""
    found: dict[str, set[float]] = {}
    for one in params:
        for name, value in one.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found.setdefault(name, set()).add(float(value))
    return {name: values for name, values in found.items() if len(values) > 1}


def sweep(views: list[ExperimentView], workload: str, axis: str, looks: dict[str, Look]) -> list[Chart]:
    """The main figures of a workload against `axis`, one drawing for each name that is the same but for the axis.

    Names are compared, not parameters: a workload may do less work per thread the more threads there are.
    """
    settings: dict[str, list[ExperimentView]] = {}
    for view in views:
        stem = without_axis(view.experiment.id, axis)
        if axis in view.experiment.params and stem is not None:
            settings.setdefault(stem, []).append(view)
    chosen = [group for group in settings.items() if len(group[1]) >= 2]
    if axis != "size" and len(chosen) > 4:  # a facet per size would be a wall of drawings: show a few
        chosen = [chosen[round(i * (len(chosen) - 1) / 3)] for i in range(4)]
    charts = []
    for setting, group in chosen:
        names = [f.name for f in main_figures(group[0])]
        for name in names:
            points = [(float(v.experiment.params[axis]), f) for v in group for f in v.figures if f.name == name]
            points.sort(key=lambda p: p[0])
            if len({x for x, _ in points}) < 2:
                continue
            where = stem_words(setting, workload)
            label = points[0][1].spec.label or words(name)
            title = f"{label}{f', {where}' if where else ''}"
            caveats = list(dict.fromkeys(c for v in group for c in v.experiment.caveats))
            chart = sweep_chart(title, axis, points, looks, caveats)
            if chart:
                charts.append(chart)
    return charts


def without_axis(identity: str, axis: str) -> str | None:
    """`lifetimes/program` for `lifetimes/program/threads=2`; None when the name does not give the axis."""
    found, times = re.subn(rf"(^|[/,:]){re.escape(axis)}=[^/,]+", "", identity)
    return found if times else None


def stem_words(stem: str, workload: str) -> str:
    """What a stem says besides the workload: `1 thread` for `throughput/threads=1`, `live` for `latency/live`."""
    said = []
    for part in re.split(r"[/,:]", stem):
        name, equals, value = part.partition("=")
        if equals:
            said.append(setting_words(name, float(value)) if re.fullmatch(r"\d+(\.\d+)?", value) else part)
        elif part and part != workload:
            said.append(words(part))
    return ", ".join(said)


def setting_words(name: str, value: Any) -> str:
    """threads=1 as '1 thread', size=1024 as '1 KiB'."""
    if name == "threads":
        return f"{value:g} {'thread' if value == 1 else 'threads'}"
    if name in ("size", "bytes") and isinstance(value, (int, float)):
        return f"{size_label(value)} blocks"
    return f"{words(name)} {value}"


def main_figures(view: ExperimentView, most: int = 2) -> list[FigureView]:
    """The figures worth a drawing: the first of speed or latency, and the first of memory."""
    found: dict[str, FigureView] = {}
    in_family = {f.name for group in numbered(view.figures).values() for _, f in group if f.role != "latency"}
    for figure in view.figures:
        if figure.headline and figure.name not in in_family:
            found.setdefault("memory" if figure.role == "memory" else "time", figure)
    return list(found.values())[:most]


def round_charts(view: ExperimentView, looks: dict[str, Look]) -> list[Chart]:
    """A dot per run of the main figures: two speeds of the machine, drift and outliers show in no summary."""
    return [chart for figure in main_figures(view) if (chart := round_chart(view, figure, looks))]


def round_chart(view: ExperimentView, figure: FigureView, looks: dict[str, Look]) -> Chart | None:
    runs = [s for s in view.experiment.samples if s.round > 0 and s.status == "ok" and figure.name in s.figures]
    rounds = sorted({float(s.round) for s in runs})
    kept = every(rounds, MOST_ROUNDS)
    scale, unit = axis_unit([s.figures[figure.name] for s in runs], figure.spec.unit)
    curves = []
    for peer, look in looks.items():
        dots = {float(s.round): s.figures[figure.name] * scale for s in runs if s.peer == peer}
        found = [x for x in kept if x in dots]
        curves += [Curve(peer, look, found, [dots[x] for x in found])] if found else []
    if len(rounds) < 2 or not curves:
        return None
    ys = [y for c in curves for y in c.y]
    title = f"{figure.spec.label or words(figure.name)}, run by run"
    draw = partial(
        plots.lines, curves, "round", unit, f"{title}, {view.experiment.id}", dots=True, height=2.4,
        log_y=min(ys) > 0 and max(ys) > 5 * min(ys), x_ticks=every(kept, 8),
    )  # fmt: skip
    note = "a dot per run" + (f", of {len(kept)} of {len(rounds):,} rounds" if len(kept) < len(rounds) else "")
    return Chart(title[:1].upper() + title[1:], lambda legend: draw(legend=legend), [c.name for c in curves], [], note)
