"""How near replays come, in docs/TRACE.md and docs/LAB.md, made from what `freestone trace fidelity` stored."""

from __future__ import annotations

import functools
import operator
import textwrap
from pathlib import Path
from typing import Any

from freestone_lab.docs.pages import grid, stored, with_section
from freestone_lab.trace import fidelity, ratios

DOCUMENT = Path("docs/TRACE.md")
RATIOS_DOCUMENT = Path("docs/LAB.md")
WITHIN = 0.05  # what the lab promises
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
    found = {DOCUMENT: page}
    if (root / ratios.RESULT).is_file():
        compared = stored(root / ratios.RESULT, ratios.SCHEMA, ratios.COMMAND)
        lab = (root / RATIOS_DOCUMENT).read_text(encoding="utf-8")
        found[RATIOS_DOCUMENT] = with_section(lab, RATIOS_DOCUMENT, "ratios", ratios_table(compared))
    return found


def ratios_table(result: dict[str, Any]) -> str:
    """Each program, and over all of them: tau of the order, and the error of foretold ratios."""
    rows = ratios.rows_of(result)
    said = []
    for figure, word in ratios.FIGURES.items():
        every = functools.reduce(operator.add, (ratios.kept(row, figure) for row in rows))
        tau = "" if every.tau is None else f": tau {every.tau:.2f}"
        said.append(
            f"In {word} the programs tell {every.told_apart} pairs of allocators apart, and their replays put "
            f"{every.agree} of these in the same order{tau}; the ratios to glibc that they foretell are off by "
            f"{ratios.error_words(every.errors)}."
        )
    versions = ", ".join(f"{name} {version}" for name, version in result["peers"].items())
    words = (
        f"{result['created'][:10]}, {result['machine']}, load {result['load']:.1f}, {result['rounds']} rounds, "
        f"`{ratios.COMMAND}`: {versions}. {' '.join(said)}"
    )
    shown = grid(ratios.HEADINGS, [ratios.cells(row) for row in rows], "---:")
    return f"{textwrap.fill(words + not_measured(result), 120)}\n\n{shown}"


def kept(result: dict[str, Any], *figures: str) -> int:
    """In how many programs the median of the replay keeps the promised distance, in all of these figures."""
    return sum(
        all(abs(fidelity.ratio(row, "replay", "program", figure)[0] - 1) <= WITHIN for figure in figures)
        for row in result["programs"]
    )


def counts(result: dict[str, Any]) -> str:
    rows = result["programs"]
    near = sum(abs(row["replay"] / row["program"] - 1) <= WITHIN for row in rows)
    words = (
        f"{result['created'][:10]}, {result['machine']}, `{fidelity.COUNTS_COMMAND}`. Of {len(rows)} programs the "
        f"replay executes as many instructions inside these calls, within 5 %, in {near}."
    )
    shown = grid(fidelity.COUNTS_HEADINGS, [fidelity.count_cells(row) for row in rows], "---:")
    return f"{textwrap.fill(words + not_measured(result), 120)}\n\n{shown}"


def not_measured(result: dict[str, Any]) -> str:
    failed = result.get("failed")  # results from before this was stored have none
    return f" Not measured: {'; '.join(failed)}." if failed else ""


def table(result: dict[str, Any]) -> str:
    count = len(result["programs"])
    beside = ": other work ran beside it, so times " if result["load"] > OWN_LOAD else ": times "
    words = (
        f"{result['created'][:10]}, {result['machine']}, load {result['load']:.1f}{beside}"
        f"are medians of {result['rounds']} rounds with their extremes. Of {count} programs the replay is within 5 % "
        f"in {kept(result, 'seconds')} in time, in {kept(result, 'peak_kib')} in peak and in "
        f"{kept(result, 'seconds', 'peak_kib')} in both."
    )
    rows = grid(fidelity.HEADINGS, [fidelity.cells(row) for row in result["programs"]], "---:")
    return f"{textwrap.fill(words + not_measured(result), 120)}\n\n{rows}"
