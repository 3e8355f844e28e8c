"""The drawings of the curves that samples carry: distributions, memory over time, overhead per size, and others."""

import math
import re
from collections.abc import Sequence
from statistics import median
from typing import Any

from freestone_lab.core.result import Sample
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.report import plots
from freestone_lab.report.charts import SIZE, Chart, axis_unit, setting_words, sweep_drawing, worth_a_sweep
from freestone_lab.report.overview import ExperimentView, FigureView, swept
from freestone_lab.report.plots import Curve, Look
from freestone_lab.report.quantity import show, size_label, words

LONGEST_SERIES = 160  # points drawn per curve
MANY_EXPERIMENTS = 4  # a workload with more of them does not draw each one's memory curve
FEW_EXPERIMENTS = 12  # a result with more of them draws the process's memory for programs only
MEMORY_CURVE = "Resident memory over time"
REPLAY_SERIES = {"heap": "Memory of the heap", "live": "Live memory, as the program asked for it"}
AXES = {
    "memory_over_live": ("phase", "resident over live memory"),
    "memory_over_requested": ("part of the run", "resident over requested memory"),
}
PROCESS_SERIES = "rss"  # every run has it
WORKLOAD_MEMORY = "resident"  # the same in a workload's own eyes
SKIPPED_SERIES = ("requested",)  # the same for every allocator
SMALLEST_REQUEST = 8  # below it the overhead is a matter of the smallest block only
OVERHEAD_SERIES = {
    "usable_overhead_percent": ("Overhead per size, by usable size", "worst in each quarter of a doubling"),
    "memory_overhead_percent": ("Overhead per size, in resident memory", "worst in each quarter of a doubling"),
}


def thin(points: Sequence[Sequence[float]], most: int) -> list[tuple[float, float]]:
    """At most `most` points, the first and the last among them."""
    if len(points) <= most:
        return [(p[0], p[1]) for p in points]
    stride = (len(points) - 1) / (most - 1)
    return [(points[round(i * stride)][0], points[round(i * stride)][1]) for i in range(most)]


def typical(samples: list[Sample], name: str) -> list[tuple[float, float]]:
    """One curve for several rounds: the point-wise median when the rounds share their x, else the middle round's."""
    found = [s.series[name] for s in samples if s.status == "ok" and s.series.get(name)]
    if not found:
        return []
    most = len(found[0]) if name in OVERHEAD_SERIES else LONGEST_SERIES  # its worst points must survive
    xs = [p[0] for p in found[0]]
    if all([p[0] for p in points] == xs for points in found):
        return thin([[x, median(points[i][1] for points in found)] for i, x in enumerate(xs)], most)
    ordered = sorted(found, key=lambda points: max(p[1] for p in points))
    return thin(ordered[(len(ordered) - 1) // 2], most)


def series_charts(view: ExperimentView, looks: dict[str, Look], siblings: int, among: int = 1) -> list[Chart]:
    """The drawings that an experiment's series call for.

    `siblings`: how many experiments its workload has; `among`: how many the result has. In a large one the memory of
    the process over time is drawn for programs only: a workload about memory has a curve of its own.
    """
    by_peer: dict[str, list[Sample]] = {}
    names: dict[str, None] = {}
    for sample in view.experiment.samples:
        by_peer.setdefault(sample.peer, []).append(sample)
        names.update(dict.fromkeys(sample.series))
    own = any(f.headline and f.name not in PROCESS_SPECS for f in view.figures)
    if (siblings > MANY_EXPERIMENTS and not own) or (own and among > FEW_EXPERIMENTS):
        names.pop(PROCESS_SERIES, None)
    figures = {f.name: f for f in view.figures}
    charts = []
    for name in names:
        curves = []
        for peer, look in looks.items():
            points = typical(by_peer.get(peer, []), name)
            if len(points) >= 2:
                curves.append(Curve(peer, look, [p[0] for p in points], [p[1] for p in points]))
        if not curves or name in SKIPPED_SERIES:
            continue
        if name == PROCESS_SERIES or name not in figures:
            charts.append(series_chart(view, name, curves))
        elif worth_a_sweep(figures[name]) and not any(swept(other, [name]) for other in figures):
            charts.append(swept_series(view, figures[name], curves))
    return charts


def swept_series(view: ExperimentView, figure: FigureView, curves: list[Curve]) -> Chart:
    """A figure that the workload measured at several values of a parameter, in processes of its own."""
    axis = axis_of(view, [x for c in curves for x in c.x])
    points = [y for c in curves for y in c.y]
    scale, unit = axis_unit(points, figure.spec.unit)
    scaled = [Curve(c.name, c.look, c.x, [y * scale for y in c.y]) for c in curves]
    told = {"threads", "size"} - {axis}
    settings = [setting_words(k, v) for k, v in view.experiment.params.items() if k in told]
    title = ", ".join([figure.spec.label or words(figure.name), *settings])
    return sweep_drawing(title, axis, scaled, unit, figure.spec, view.experiment.caveats)


def axis_of(view: ExperimentView, xs: list[float]) -> str:
    """The parameter behind a swept series: the one that was given several values, else what the numbers look like."""
    for name, value in view.experiment.params.items():
        if isinstance(value, list) or (isinstance(value, str) and re.search(r"\d\s*(,|\.\.)\s*\d", value)):
            return name
    return "size" if max(xs) > 256 else "threads"


def series_chart(view: ExperimentView, name: str, curves: list[Curve]) -> Chart:
    """A curve of its own kind: a distribution, memory over time, overhead per size, or anything else."""
    lower = name.lower()
    options: dict[str, Any] = {}
    note = ""
    if "ccdf" in lower:
        title = f"How long a {words(lower.split('ccdf')[0]) or 'call'} takes at worst"
        note = "share of calls that take longer; left and low is better"
        curves = [positive(c) for c in curves]
        options = {"log_x": True, "log_y": True, "step": True, "show_x": nanoseconds, "show_y": share, "height": 3.5}
        labels = ("time of one call", "share of calls")
    elif lower in (PROCESS_SERIES, WORKLOAD_MEMORY):
        title, labels = MEMORY_CURVE, ("milliseconds" if lower == PROCESS_SERIES else "seconds", "MiB")
        curves = [Curve(c.name, c.look, c.x, [y / 1024 for y in c.y]) for c in curves]
        options = {"floor": True}
    elif lower in REPLAY_SERIES:
        title, labels = REPLAY_SERIES[lower], ("seconds of the recording", "MiB")
        curves = [Curve(c.name, c.look, c.x, [y / 1024 for y in c.y]) for c in curves]
        options = {"floor": True}
    elif lower in OVERHEAD_SERIES:
        title, note = OVERHEAD_SERIES[lower]
        curves = [overhead(c) for c in curves]
        xs = [x for c in curves for x in c.x]
        options = {"log_x": True, "show_x": size_label, "x_ticks": plots.size_ticks(min(xs), max(xs), 5), "floor": True}
        labels = ("requested size", "% of the request")
    else:
        title, labels = words(name), AXES.get(lower, ("", words(name)))
        xs, ys = [x for c in curves for x in c.x], [y for c in curves for y in c.y]
        options = {"log_x": min(xs) > 0 and max(xs) > 100 * min(xs), "log_y": min(ys) > 0 and max(ys) > 100 * min(ys)}
        if SIZE.search(name) and options["log_x"]:
            options |= {"show_x": size_label, "x_ticks": plots.size_ticks(min(xs), max(xs), 5)}
    title = title[:1].upper() + title[1:]

    def draw(legend: bool) -> str:
        return plots.lines(curves, *labels, f"{title}, {view.experiment.id}", markers=False, legend=legend, **options)

    return Chart(title, draw, [c.name for c in curves], view.experiment.caveats, note)


def overhead(curve: Curve) -> Curve:
    """The worst overhead in percent, four points per doubling of the request: the points themselves are a saw."""
    worst: dict[int, float] = {}
    for request, percent in zip(curve.x, curve.y, strict=True):
        if request >= SMALLEST_REQUEST:
            place = round(4 * math.log2(request))
            worst[place] = max(worst.get(place, 0.0), percent)
    places = sorted(worst)
    return Curve(curve.name, curve.look, [2 ** (p / 4) for p in places], [worst[p] for p in places])


def positive(curve: Curve) -> Curve:
    """Without the points that a logarithmic axis cannot show."""
    kept = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if x > 0 and y > 0]
    return Curve(curve.name, curve.look, [x for x, _ in kept], [y for _, y in kept])


def nanoseconds(value: float) -> str:
    """1000 as 1 µs: round numbers on an axis, without the digits of a figure."""
    number, _, unit = show(value, "ns").partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}"


def share(value: float) -> str:
    """0.001 as 0.1 %."""
    return f"{value * 100:g} %"
