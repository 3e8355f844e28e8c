"""What a figure is about (speed, latency, memory) and how a person reads it.

A *cost* is a figure turned so that lower is better: a rate becomes its inverse. Every ratio in the report is a ratio of
costs, so below 1 is better everywhere.
"""

import math
import re
from typing import Literal

from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import FigureSpec

Role = Literal["speed", "latency", "memory", "other"]

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
BYTES = {"B": 1.0, "bytes": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3, "kB": 1e3, "KB": 1e3, "MB": 1e6}
RATE = re.compile(r"/\s*s(ec)?$|ops$", re.IGNORECASE)
PERCENTILE = re.compile(r"^(m|c|re)?(alloc|free)\w*_p\d+|latency", re.IGNORECASE)
MEMORY = re.compile(r"rss|pss|resident|footprint|overhead|waste|mapped|heap_(size|bytes)|memory", re.IGNORECASE)


def role(name: str, spec: FigureSpec) -> Role:
    """The criterion that a figure speaks to, judged by its unit first and its name second."""
    if spec.better == "neither":
        return "other"
    if spec.unit in BYTES or (spec.unit in ("ratio", "%", "percent") and MEMORY.search(name)):
        return "memory"
    if PERCENTILE.search(name) and spec.unit in SECONDS:
        return "latency"
    if spec.unit in SECONDS or RATE.search(spec.unit) or spec.unit in ("cycles", "instructions"):
        return "speed"
    return "other"


def cost(value: float, spec: FigureSpec) -> float | None:
    """The figure as a positive cost, lower better; None when it has no direction or no ratio can be formed from it."""
    if spec.better == "neither" or not math.isfinite(value) or value <= 0:
        return None
    return 1.0 / value if spec.better == "higher" else value


def significant(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, thousands separated, no exponent for everyday sizes."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def show(value: float, unit: str) -> str:
    """A figure with the unit a person would choose: 0.00123 s becomes 1.23 ms, 20480 KiB becomes 20.0 MiB."""
    if unit in SECONDS:
        return _scaled(value * SECONDS[unit], (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))
    if unit in BYTES:
        sizes = (("GiB", 1024.0**3), ("MiB", 1024.0**2), ("KiB", 1024.0), ("B", 1.0))
        return _scaled(value * BYTES[unit], sizes, threshold=0.98)
    if RATE.search(unit):
        times, what = rate_unit(unit)
        return _scaled(value * times, (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)), tail=what)
    if unit in ("%", "percent"):
        return f"{significant(value)} %"
    if unit in ("", "count", "ratio"):
        return f"{value:,.0f}" if unit == "count" and value == round(value) else significant(value)
    return f"{significant(value)} {unit}"


def rate_unit(unit: str) -> tuple[float, str]:
    """What one count of a rate's unit stands for, and how the rate is written: 1e6/s is (1e6, '/s')."""
    factor = re.match(r"(1(?:e\d+)?)/", unit)
    return (float(factor[1]), unit[factor.end() - 1 :]) if factor else (1.0, unit)


def show_span(low: float, high: float, unit: str) -> str:
    """Two figures with their unit said once when it is the same."""
    left, right = show(low, unit), show(high, unit)
    number, _, left_unit = left.partition(" ")
    return f"{number} to {right}" if left_unit == right.partition(" ")[2] else f"{left} to {right}"


def _scaled(value: float, steps: tuple[tuple[str, float], ...], tail: str = "", threshold: float = 1.0) -> str:
    for name, size in steps:
        if abs(value) >= size * threshold:
            return f"{significant(value / size)} {name}{tail}"
    name, size = steps[-1]
    return f"{significant(value / size)} {name}{tail}"


def size_label(value: float) -> str:
    """A size in bytes on an axis: 1024 is 1 KiB."""
    for name, step in (("GiB", 1024.0**3), ("MiB", 1024.0**2), ("KiB", 1024.0)):
        if value >= step:
            return f"{value / step:g} {name}"
    return f"{value:g} B"


def ratio(value: float) -> str:
    """A ratio with two decimals while near one, fewer digits when far away."""
    if value < 0.1:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def span(low: float, high: float) -> str:
    """An interval of ratios, with a third decimal where two would make its ends equal."""
    digits = _digits(low, high)
    return f"{low:.{digits}f} to {high:.{digits}f}" if high < 10 else f"{ratio(low)} to {ratio(high)}"


def ratio_and_span(estimate: Estimate) -> str:
    """`0.81 (0.63 to 0.93)`; without brackets while nothing is known."""
    return ratio(estimate.ratio) + (f" ({span(estimate.low, estimate.high)})" if estimate.is_known else "")


def ratio_within(value: float, low: float, high: float) -> str:
    """A ratio beside its interval: with as many decimals, so that it never seems to lie outside."""
    return f"{value:.3f}" if _digits(low, high) == 3 else ratio(value)


def _digits(low: float, high: float) -> int:
    return 3 if high < 10 and high - low < 0.02 else 2


def percent_change(value: float) -> str:
    """0.88 as '12 % less', 1.3 as '30 % more', 2.4 as '2.4 times as much'."""
    if value >= 2:
        return f"{value:.1f} times as much"
    change = abs(1 - value) * 100
    digits = 0 if change >= 10 else 1
    return f"{change:.{digits}f} % {'less' if value < 1 else 'more'}"


def words(name: str) -> str:
    """A figure's or a series' name as a person would write it."""
    return re.sub(r"\b(rss|pss)\b", lambda m: m[1].upper(), name.replace("_", " ").strip())
