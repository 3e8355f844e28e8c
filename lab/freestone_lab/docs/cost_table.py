"""What real programs cost under both builds, in docs/HARDENING.md, made from docs/results/program-costs.json.gz."""

from __future__ import annotations

import shlex
import textwrap
from math import inf
from pathlib import Path
from statistics import geometric_mean

from freestone_lab.analysis import paired
from freestone_lab.core.result import Experiment, Result, control_name
from freestone_lab.core.result_file import load
from freestone_lab.docs.pages import cell_text, grid, section_from
from freestone_lab.report.overview import failures_of
from freestone_lab.workloads import suites

DOCUMENT = Path("docs/HARDENING.md")
RESULT = Path("docs/results/program-costs.json.gz")
HARDENED, FAST = "freestone-hardened", "freestone"
HEADINGS = ("program", "CPU, hardened", "spread", "CPU, fast", "CPU, glibc again", "peak, hardened", "peak, fast")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "program costs", lambda path: table(load(path)))


def table(result: Result) -> str:
    """Ratios to glibc, the worst program first. A program without a figure stands above them, with the reason."""
    again = control_name(result.baseline)
    columns = ((HARDENED, "cpu"), (FAST, "cpu"), (again, "cpu"), (HARDENED, "rss"), (FAST, "rss"))
    by_name = {experiment.id.removeprefix("app/"): experiment for experiment in result.experiments}
    measured: dict[tuple[str, str], list[float]] = {column: [] for column in columns}
    rows: list[tuple[float, list[str]]] = []
    for name in suites.COSTS:
        experiment = by_name.get(name)
        if experiment is None:
            rows.append((inf, [name, "not measured", *[""] * (len(HEADINGS) - 2)]))
            continue
        cells: list[str] = []
        for peer, figure in columns:
            found = paired.estimate(experiment, peer, result.baseline, figure)
            failure = _failure(experiment, peer)
            if found is not None and not failure:
                measured[peer, figure].append(found.ratio)
            cells.append(failure or (f"{found.ratio:.2f}" if found else "not measured"))
        shown = paired.estimate(experiment, HARDENED, result.baseline, "cpu")
        spread = f"{shown.low:.2f} to {shown.high:.2f}" if shown and shown.is_known else ""
        worst = shown.ratio if shown and not _failure(experiment, HARDENED) else inf
        rows.append((worst, [name, cells[0], spread, *cells[1:]]))
    means = [f"{geometric_mean(ratios):.2f}" if ratios else "-" for ratios in measured.values()]
    rows.sort(key=lambda row: -row[0])
    shown_rows = [*(row for _, row in rows), ["geometric mean", means[0], "", *means[1:]]]
    rounds = max((s.round for e in result.experiments for s in e.samples), default=0)
    said = (
        f"CPU time (user and system) and peak memory of real programs and all that they start, relative to glibc: the "
        f"median of {rounds} alternated rounds, with its 95 % interval. `{shlex.join(result.command)}` (`{RESULT}`). "
        f"The worst comes first:"
    )
    said = textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False)
    return f"{said}\n\n{grid(HEADINGS, shown_rows, '---:')}"


def _failure(experiment: Experiment, peer: str) -> str:
    """Why this allocator's figures do not count: its first run that was not right; "" if all were."""
    bad = next((failure for failure in failures_of(experiment) if failure.peer == peer), None)
    return cell_text(f"{bad.status}: {bad.detail}"[:80]) if bad else ""
