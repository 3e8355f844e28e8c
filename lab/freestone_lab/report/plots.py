"""The drawings. Each function takes plain numbers and returns an SVG fragment (see `svg.py`).

matplotlib is imported where it is used: it takes longer to load than most commands take that draw nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from freestone_lab.report.svg import CARD, FONT, INK, MUTED, RC, WIDTH, finish, slot_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.6)), (0, (1.2, 1.4)))


FAR = 2.0  # times the baseline
RATIO_TICKS: tuple[tuple[float, ...], ...] = (
    (0.98, 0.99, 1, 1.01, 1.02),
    (0.96, 0.98, 1, 1.02, 1.04),
    (0.9, 0.95, 1, 1.05, 1.1),
    (0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3),
    (0.6, 0.8, 1, 1.2, 1.4, 1.6),
    (0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.5, 2),
    (0.5, 0.7, 1, 1.5, 2, 3),
    (0.25, 0.5, 1, 2, 4, 8),
    (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50),
    (0.01, 0.1, 1, 10, 100, 1000),
)


@dataclass(frozen=True)
class Look:
    """How one allocator appears in every drawing of a page."""

    slot: int
    bold: bool = False

    @property
    def colour(self) -> str:
        return slot_colour(self.slot)

    @property
    def marker(self) -> str:
        return MARKERS[self.slot % len(MARKERS)]

    @property
    def dash(self) -> Any:
        return DASHES[(self.slot // 7) % len(DASHES)]


@dataclass(frozen=True)
class Point:
    name: str
    look: Look
    x: float
    y: float
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Span:
    """One row of the forest plot: a ratio with its interval, and the ratios of the single experiments as dots."""

    name: str
    look: Look
    ratio: float
    interval: tuple[float, float] | None
    dots: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Curve:
    name: str
    look: Look
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def figure(height: float) -> tuple[Figure, Axes]:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(RC):
        drawn = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))
        axes = drawn.add_subplot()
    return drawn, axes


def ratio_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round ratios inside a range, far enough apart on a logarithmic axis; 1 is among them when it is inside."""
    span = math.log(high / low)
    best: list[float] = [1.0]
    for ticks in RATIO_TICKS:
        inside = [t for t in ticks if low <= t <= high]
        gaps = [math.log(b / a) for a, b in pairwise(inside)]
        if len(inside) <= most and (not gaps or min(gaps) > 0.11 * span) and len(inside) >= len(best):
            best = inside
    return best


def ratio_axis(axes: Axes, which: str, values: Sequence[float]) -> None:
    """A logarithmic axis that shows `values` and 1 with a little air."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min([1.0, *values]), max([1.0, *values])
    air = max((high / low) ** 0.08, 1.01)
    low, high = low / air, high * air
    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    if which == "x":
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    else:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
    axis.set_major_locator(FixedLocator(ratio_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats in both directions, by rising x."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.x, p.y)):
        if not kept or point.y < kept[-1].y:
            kept.append(point)
    return kept


def inside(points: Sequence[Point]) -> list[Point]:
    """The points worth the room: those far beyond the rest would press it into a corner and are left to the text."""
    middle = sorted(max(p.x, p.y) for p in points)[len(points) // 2]
    return [p for p in points if max(p.x, p.y) <= max(FAR, 1.3 * middle)]


def pareto(points: Sequence[Point], x_label: str, y_label: str, title: str) -> str:
    """Cost against cost, both as ratios to the baseline: the lower left corner is best; the line joins the unbeaten."""
    drawn, axes = figure(4.3)
    ratio_axis(axes, "x", [v for p in points for v in (p.x, *(p.x_range or ()))])
    ratio_axis(axes, "y", [v for p in points for v in (p.y, *(p.y_range or ()))])
    axes.axvline(1, color=MUTED, lw=0.8, ls=(0, (2, 2)), zorder=1)
    axes.axhline(1, color=MUTED, lw=0.8, ls=(0, (2, 2)), zorder=1)
    front = frontier(points)
    if len(front) > 1:
        axes.step([p.x for p in front], [p.y for p in front], where="post", color=MUTED, lw=1.2, zorder=2)
    for point in points:
        if point.x_range:
            axes.plot(point.x_range, (point.y, point.y), color=point.look.colour, lw=1.4)
        if point.y_range:
            axes.plot((point.x, point.x), point.y_range, color=point.look.colour, lw=1.4)
        axes.plot(
            point.x, point.y, point.look.marker, color=point.look.colour, ms=8 if point.look.bold else 6.5,
            mec=CARD, mew=0.8, zorder=4 if point.look.bold else 3,
        )  # fmt: skip
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    drawn.draw_without_rendering()
    label_points(axes, points)
    return finish(drawn, title)


def label_points(axes: Axes, points: Sequence[Point]) -> None:
    """Names beside their points: each takes the free place nearest to its point; a far one gets a thin line."""
    transform = axes.transData.transform
    frame = axes.get_window_extent()
    at = {p.name: transform((p.x, p.y)) for p in points}
    taken: list[tuple[float, float, float, float]] = [(x - 5, y - 5, x + 5, y + 5) for x, y in at.values()]
    for point in points:  # the interval bars are in the way, too
        (x, y) = at[point.name]
        for low, high in [point.x_range] if point.x_range else []:
            taken.append((transform((low, point.y))[0], y - 1, transform((high, point.y))[0], y + 1))
        for low, high in [point.y_range] if point.y_range else []:
            taken.append((x - 1, transform((point.x, low))[1], x + 1, transform((point.x, high))[1]))
    for point in sorted(points, key=lambda p: (not p.look.bold, at[p.name][1], p.name)):
        x, y = at[point.name]
        probe = axes.text(0, 0, point.name, weight="bold" if point.look.bold else "normal")
        box = probe.get_window_extent()
        probe.remove()
        width, height = box.width, box.height
        best: tuple[float, float, float] | None = None
        for distance in (7, 14, 24, 36, 50, 66, 84, 105, 130, 160):
            for angle in range(0, 360, 30):
                dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
                cx = x + dx * (distance + width / 2 * abs(dx) ** 0.5)
                cy = y + dy * (distance + height / 2)
                rect = (cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2)
                if rect[0] < frame.x0 or rect[2] > frame.x1 or rect[1] < frame.y0 or rect[3] > frame.y1:
                    continue
                overlap = sum(
                    max(0.0, min(rect[2], t[2]) - max(rect[0], t[0]))
                    * max(0.0, min(rect[3], t[3]) - max(rect[1], t[1]))
                    for t in taken
                )
                if best is None or (overlap, distance) < (best[0] - 0.5, math.inf):
                    best = (overlap, cx, cy)
            if best is not None and best[0] < 0.5:
                break
        _, cx, cy = best if best is not None else (0.0, x, y + 12)
        taken.append((cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2))
        far = math.hypot(max(0.0, abs(cx - x) - width / 2), cy - y) > 18
        axes.annotate(
            point.name, xy=(point.x, point.y), xytext=tuple(axes.transAxes.inverted().transform((cx, cy))),
            textcoords="axes fraction", ha="center", va="center", color=point.look.colour, zorder=6,
            weight="bold" if point.look.bold else "normal", gid="label-1",
            arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.7, "shrinkB": 4} if far else None,
        )  # fmt: skip


def forest(rows: Sequence[Span], x_label: str, title: str) -> str:
    """Ratios to the baseline with their intervals, one row per allocator, best on top."""
    ordered = sorted(rows, key=lambda row: row.ratio)
    drawn, axes = figure(0.8 + 0.33 * len(ordered))
    shown = [v for r in ordered for v in (r.ratio, *(r.interval or ()), *r.dots)]
    ratio_axis(axes, "x", shown)
    axes.axvline(1, color=MUTED, lw=1)
    for index, row in enumerate(reversed(ordered)):
        if row.dots:
            axes.plot(row.dots, [index] * len(row.dots), "o", color=row.look.colour, alpha=0.35, ms=3.5, mew=0)
        if row.interval:
            axes.plot(row.interval, [index, index], color=row.look.colour, lw=3.2, solid_capstyle="round")
        axes.plot([row.ratio], [index], row.look.marker, color=row.look.colour, ms=7.5, mec=CARD, mew=0.8)
    axes.set_yticks(range(len(ordered)), [row.name for row in reversed(ordered)])
    for label, row in zip(axes.get_yticklabels(), reversed(ordered), strict=True):
        label.set_color(INK)
        label.set_fontweight("bold" if row.look.bold else "normal")
    axes.set_ylim(-0.6, len(ordered) - 0.4)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(x_label)
    return finish(drawn, title)


def lines(
    curves: Sequence[Curve],
    x_label: str,
    y_label: str,
    title: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    step: bool = False,
    markers: bool = True,
    show_x: Callable[[float], str] | None = None,
    show_y: Callable[[float], str] | None = None,
    x_ticks: Sequence[float] | None = None,
    y_ticks: Sequence[float] | None = None,
    height: float = 3.2,
    floor: bool = False,
    legend: bool = False,
    dots: bool = False,
) -> str:
    """Curves over a common axis, or their points alone; quartiles become bands."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    drawn, axes = figure(height)
    if log_x:
        axes.set_xscale("log", base=2 if x_ticks else 10)
    if log_y:
        axes.set_yscale("log")
    for curve in sorted(curves, key=lambda c: c.look.bold):
        if dots:  # lines without length and with round ends: a fifth of the bytes of markers
            ends = [point for point in zip(curve.x, curve.y, strict=True) for _ in "ab"]
            path = Path(ends, [Path.MOVETO, Path.LINETO] * len(curve.x))
            look: Any = {"ec": curve.look.colour, "fc": "none", "lw": 4, "capstyle": "round", "label": curve.name}
            axes.add_patch(PathPatch(path, gid=f"peer-{curve.look.slot}-line", zorder=3, **look))
            axes.autoscale_view()
            continue
        axes.plot(
            curve.x, curve.y, color=curve.look.colour, ls=curve.look.dash, label=curve.name,
            marker=curve.look.marker if markers else None, mec=CARD, mew=0.6,
            lw=2.4 if curve.look.bold else 1.6, gid=f"peer-{curve.look.slot}-line",
            drawstyle="steps-post" if step else "default", zorder=4 if curve.look.bold else 3,
        )  # fmt: skip
        if curve.low is not None and curve.high is not None and len(curve.x) > 1:
            axes.fill_between(
                curve.x, curve.low, curve.high, color=curve.look.colour, alpha=0.14, lw=0,
                gid=f"peer-{curve.look.slot}-band", zorder=2,
            )  # fmt: skip
    tick_axis(axes, "x", log_x, show_x, x_ticks, most=6)
    tick_axis(axes, "y", log_y, show_y, y_ticks, most=6)
    if floor and not log_y:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if legend:
        import matplotlib

        with matplotlib.rc_context(RC):
            order = {curve.name: curve.look.slot for curve in curves}
            handles, names = axes.get_legend_handles_labels()
            pairs = sorted(zip(handles, names, strict=True), key=lambda pair: order[pair[1]])
            drawn.legend(
                [h for h, _ in pairs], [n for _, n in pairs], loc="outside lower center", ncols=3, frameon=False,
                fontsize=FONT - 1.5, handlelength=1.8, columnspacing=1.2,
            )  # fmt: skip
            drawn.set_figheight(height + 0.22 * -(-len(curves) // 3) + 0.1)
    return finish(drawn, title)


def tick_axis(
    axes: Axes, which: str, log: bool, show: Callable[[float], str] | None, ticks: Sequence[float] | None, most: int
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    if ticks is None and log:
        ticks = log_ticks(low, high, most)
    if ticks is not None:
        axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
    elif not log:
        axis.set_major_locator(MaxNLocator(most - 1))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: show(v) if show else f"{v:g}"))


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Decades when there are several, otherwise 1-2-5 steps, otherwise a few round numbers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3), (1,)):
        found = [s * 10.0**e for e in range(first, last + 1) for s in steps if low <= s * 10.0**e <= high]
        if 2 <= len(found) <= most:
            return found
    decades = [10.0**e for e in range(first, last + 1) if low <= 10.0**e <= high]
    if len(decades) > most:
        return decades[:: math.ceil(len(decades) / most)]
    from matplotlib.ticker import MaxNLocator

    return [float(v) for v in MaxNLocator(most - 1).tick_values(low, high) if low <= v <= high]


def size_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Powers of two inside a range, at most `most`."""
    exponents = list(range(math.ceil(math.log2(max(low, 1))), math.floor(math.log2(max(high, 1))) + 1))
    stride = max(1, math.ceil(len(exponents) / most))
    return [2.0**e for e in exponents[::stride]]
