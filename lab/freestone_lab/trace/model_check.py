"""Whether a model's numbers are possible: it may come from anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from freestone_lab.trace import layout

MOST_BIRTHS = 400_000_000  # as many events as the replayer takes
TIMES_END = 1 << 62
BIRTH_KINDS = frozenset(int(kind) for kind in layout.Kind if layout.IS_BIRTH[kind])
Range = tuple[int, int]


def check(model: dict[str, Any], makers: int, cell: Sequence[str]) -> None:
    """ValueError or KeyError says what is impossible. `cell`: the names of a cell's columns."""
    if not isinstance(model["program"], str):
        raise ValueError("program")
    (births,) = _integers("births", [model["births"]], (1, MOST_BIRTHS + 1))
    _integers("step_ns", [model["step_ns"]], (1, 1 << 32))
    _integers("last", [model["last"]], (0, TIMES_END))
    edges = _integers("edges", model["edges"], (0, 2 * MOST_BIRTHS))
    bursts = _integers("bursts", model["bursts"], (1, births + 1))
    if len(edges) != len(bursts) or len(edges) < 2 or any(a >= b for a, b in itertools.pairwise(edges)):
        raise ValueError("edges")
    places, times = model["clock"]
    if len(places) != len(times) or not (_ascends(places) and _ascends(times)):
        raise ValueError("clock")
    ends, sizes, maker = (-1, 1000 + 2 * len(edges)), (0, layout.SIZES_END), (0, makers + 1)
    ranges: dict[str, Range] = {
        "phase": (0, len(edges)), "maker": maker, "ender": maker, "kind": (0, 32), "align": (0, 64),
        "continued": (0, 2), "end": ends, "size": sizes, "age": (0, TIMES_END), "before": (-2, layout.SIZES_END),
        "count": (1, births + 1), "place": (0, births), "due": (-1, 2 * MOST_BIRTHS), "pages": (-1, 1 << 40),
    }  # fmt: skip
    cells = _columns("cells", model["cells"], cell, ranges)
    kept = ("place", "due", "maker", "ender", "kind", "align", "continued", "before", "size", "pages")
    large = _columns("large", model["large"], kept, ranges)
    if not {*cells["kind"], *large["kind"]} <= BIRTH_KINDS:
        raise ValueError("kind")
    if sum(cells["count"]) + len(set(large["place"])) != births or len(set(large["place"])) != len(large["place"]):
        raise ValueError("the births of its cells are not as many as it says")


def _integers(name: str, numbers: Any, allowed: Range) -> list[int]:
    if not isinstance(numbers, list) or not all(type(n) is int and allowed[0] <= n < allowed[1] for n in numbers):
        raise ValueError(f"{name}: expected whole numbers from {allowed[0]} to {allowed[1] - 1}")
    return numbers


def _columns(name: str, columns: Any, names: Sequence[str], ranges: dict[str, Range]) -> dict[str, list[int]]:
    if not isinstance(columns, list) or len(columns) != len(names):
        raise ValueError(f"{name}: expected {len(names)} columns")
    found = {one: _integers(f"{name}, {one}", column, ranges[one]) for one, column in zip(names, columns, strict=True)}
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"{name}: its columns are not equally long")
    return found


def _ascends(numbers: list[Any]) -> bool:
    known = all(type(n) in (int, float) and math.isfinite(n) and 0 <= n < TIMES_END for n in numbers)
    return known and len(numbers) > 0 and all(a <= b for a, b in itertools.pairwise(numbers))
