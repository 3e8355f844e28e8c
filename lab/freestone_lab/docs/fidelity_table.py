"""The table of docs/TRACE.md about how near replays come, made from what `freestone trace fidelity` stored."""

from __future__ import annotations

import textwrap
from pathlib import Path
from statistics import median
from typing import Any

from freestone_lab.docs.pages import grid, stored, with_section
from freestone_lab.trace import fidelity, likeness

DOCUMENT = Path("docs/TRACE.md")
WITHIN = {"replay": 0.05, "model": 0.1}  # what the lab promises
OWN_LOAD = 1.5  # the run itself makes 1, and a little of the system's


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    if not (root / fidelity.RESULT).is_file():
        return {}
    page = (root / DOCUMENT).read_text(encoding="utf-8")
    result = stored(root / fidelity.RESULT, fidelity.SCHEMA, fidelity.COMMAND)
    page = with_section(page, DOCUMENT, "fidelity", table(result))
    if (root / fidelity.COUNTS).is_file():
        counted = stored(root / fidelity.COUNTS, fidelity.COUNTS_SCHEMA, fidelity.COUNTS_COMMAND)
        page = with_section(page, DOCUMENT, "counts", counts(counted))
    if (root / likeness.RESULT).is_file():
        compared = stored(root / likeness.RESULT, likeness.SCHEMA, likeness.COMMAND)
        page = with_section(page, DOCUMENT, "models", models(compared))
    return {DOCUMENT: page}


def kept(result: dict[str, Any], what: str, to: str, *figures: str) -> int:
    """In how many programs the median of `what` keeps the promised distance to `to`, in all of these figures."""
    return sum(
        all(abs(fidelity.ratio(row, what, to, figure)[0] - 1) <= WITHIN[what] for figure in figures)
        for row in result["programs"]
    )


def counts(result: dict[str, Any]) -> str:
    rows = result["programs"]
    near = sum(abs(row["replay"] / row["program"] - 1) <= WITHIN["replay"] for row in rows)
    words = (
        f"{result['created'][:10]}, {result['machine']}, `{fidelity.COUNTS_COMMAND}`. Of {len(rows)} programs the "
        f"replay executes as many instructions inside these calls, within 5 %, in {near}."
    )
    shown = grid(fidelity.COUNTS_HEADINGS, [fidelity.count_cells(row) for row in rows], "---:")
    return f"{textwrap.fill(words + not_measured(result), 120)}\n\n{shown}"


def not_measured(result: dict[str, Any]) -> str:
    failed = result.get("failed")  # results from before this was stored have none
    return f" Not measured: {'; '.join(failed)}." if failed else ""


def models(result: dict[str, Any]) -> str:
    """Every program, what misses first: the worse, the higher."""
    off = {
        row["name"]: {name: abs(by) for name in likeness.FIGURES if (by := likeness.change(row, name)) is not None}
        for row in result["programs"]
    }
    sizes = [row["model_bytes"] / 1024 for row in result["programs"]]
    all_near = sum(max(row.values()) <= WITHIN["model"] for row in off.values())
    each = ", ".join(
        f"{sum(row.get(name, 1) <= WITHIN['model'] for row in off.values())} in {heading}"
        for name, heading in likeness.FIGURES.items()
    )
    words = (
        f"{result['created'][:10]}, {result['machine']}, `{likeness.COMMAND}`. A model has {min(sizes):.1f} to "
        f"{max(sizes):.1f} KiB as a file, {median(sizes):.1f} KiB in the middle. Of {len(off)} models {all_near} are "
        f"within 10 % of their traces in every figure: {each}."
    )
    rows = sorted(result["programs"], key=lambda row: -max(off[row["name"]].values()))
    shown = grid(likeness.HEADINGS, [likeness.cells(row) for row in rows], "---:")
    return f"{textwrap.fill(words, 120)}\n\n{shown}"


def table(result: dict[str, Any]) -> str:
    count = len(result["programs"])
    replay = ("replay", "program")
    model = ("model", "replay")
    beside = ": other work ran beside it, so times " if result["load"] > OWN_LOAD else ": times "
    words = (
        f"{result['created'][:10]}, {result['machine']}, load {result['load']:.1f}{beside}"
        f"are medians of {result['rounds']} rounds with their extremes. Of {count} programs the replay is within 5 % "
        f"in {kept(result, *replay, 'seconds')} in time, in {kept(result, *replay, 'peak_kib')} in peak and in "
        f"{kept(result, *replay, 'seconds', 'peak_kib')} in both; "
        f"the model is within 10 % of the trace in {kept(result, *model, 'seconds')} in time, in "
        f"{kept(result, *model, 'peak_kib')} in peak and in {kept(result, *model, 'mean_kib')} in mean memory."
    )
    rows = grid(fidelity.HEADINGS, [fidelity.cells(row) for row in result["programs"]], "---:")
    return f"{textwrap.fill(words + not_measured(result), 120)}\n\n{rows}"
