"""How near the models of the corpus come to their traces, in figures that no other work on the machine changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from freestone_lab.core import outputs
from freestone_lab.measure import counts
from freestone_lab.trace import corpus, fidelity, figures, fitted, reader, replaying, writer

SCHEMA = "freestone-models/1"
COMMAND = "freestone trace fidelity --models"
RESULT = Path("docs/results/fidelity-models.json")
# What is compared, and its heading. Live memory follows from the events, the rest from a replay under glibc.
FIGURES = {
    "calls": "calls",
    "live_peak": "live peak",
    "live_mean": "live mean",
    "rss": "resident peak",
    "rss_mean": "resident mean",
    "instructions": "instructions",
}


@dataclass(frozen=True)
class Row:
    """A trace of the corpus and its model; `trace` and `model` have each of FIGURES."""

    name: str
    trace_bytes: int
    model_bytes: int
    trace: dict[str, float]
    model: dict[str, float]


def measure(names: Sequence[str], say: Callable[[str], None]) -> list[Row]:
    """UserError for a name that the corpus does not have; without valgrind no instructions are counted."""
    found = []
    with outputs.Scratch("models") as scratch:
        folder = Path(scratch)
        model, made = folder / "fitted.model", folder / "made.fst"
        for path in corpus.traces(names):
            size = fitted.save(fitted.fit(reader.read(path)), model)
            writer.write(fitted.generate(fitted.load(model)), made)
            found.append(Row(path.stem, path.stat().st_size, size, _figures(path, folder), _figures(made, folder)))
            say(path.stem)
    return found


def _figures(path: Path, folder: Path) -> dict[str, float]:
    trace = reader.read(path)
    change = figures.changes(trace, figures.busiest_process(trace))
    live, held = change.live_bytes, np.diff(change.times)
    way = replaying.Way(idle_ms=0)
    plan = replaying.make_plan(path, way)
    words = replaying.command(plan, way)
    said = replaying.replay(words)
    inside = counts.by_process(words, dict(os.environ), Path("/"), None, folder, fidelity.CALLS)
    if path.parent == folder:
        plan.unlink(missing_ok=True)
    memory = {name: float(said["figures"][name]["value"]) for name in ("rss", "rss_mean")}
    return {
        "calls": float(said["calls"]),
        "live_peak": float(live.max()),
        "live_mean": float((live[:-1] * held).sum() / max(1, held.sum())),
        **memory,
        **({"instructions": float(max(inside))} if inside else {}),
    }


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    return fidelity.to_store(SCHEMA, rows)


def change(row: dict[str, Any], figure: str) -> float | None:
    """The model's figure against its trace's; None where it was not measured."""
    ours, theirs = row["model"].get(figure), row["trace"].get(figure)
    return ours / theirs - 1 if ours is not None and theirs else None


HEADINGS: tuple[str, ...] = ("program", "trace", "model", *FIGURES.values())


def cells(row: dict[str, Any]) -> list[str]:
    """A program's line of the table."""
    found = [change(row, figure) for figure in FIGURES]
    sizes = [f"{row[name] / 1024:.1f} KiB" for name in ("trace_bytes", "model_bytes")]
    return [row["name"], *sizes, *("-" if one is None else f"{one:+.1%}" for one in found)]
