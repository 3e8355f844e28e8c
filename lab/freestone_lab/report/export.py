"""A result in other tools' formats: CSV (every sample), Markdown (the tables)."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from freestone_lab.analysis.claims import Row, Table, change, headline, verdict_word
from freestone_lab.analysis.decision import decide, evidence_of
from freestone_lab.core import outputs
from freestone_lab.core.result import Result
from freestone_lab.report.card import one_line
from freestone_lab.report.quantity import show


def verdict_of(table: Table) -> str:
    """The answer of one experiment in one sentence."""
    evidence = evidence_of(table.experiment, table.baseline, table.controls)
    return one_line(evidence, decide(evidence))


def write_csv(result: Result, _: Sequence[Table], path: Path) -> None:
    """One line per sample and figure; failed samples have one line with an empty figure."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["experiment", "peer", "round", "status", "detail", "figure", "unit", "value"])
    for experiment in result.experiments:
        for s in experiment.samples:
            head = [experiment.id, s.peer, s.round, s.status, s.detail]
            if not s.figures:
                writer.writerow([*head, "", "", ""])
            for name, value in s.figures.items():
                writer.writerow([*head, name, experiment.specs[name].unit, repr(value)])
    outputs.write_whole(path, text.getvalue())


def grid(headings: Sequence[str], rows: Sequence[Sequence[str]], rule: str = "---") -> str:
    """A table of Markdown; below the first heading stands `---`, below the others the words of `rule`."""
    rules = ["---", *rule.split()]
    rules += rules[-1:] * (len(headings) - len(rules))
    head = [f"| {' | '.join(headings)} |", f"|{'|'.join(rules)}|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def cells_of(table: Table, row: Row, figure: str) -> list[str]:
    """A figure of an allocator with its spread, its change from the baseline, and the verdict in words."""
    cell, spec = row.cells.get(figure), table.experiment.specs[figure]
    if cell is None:
        return ["", "", ""]
    spread = f" ±{cell.summary.spread * 100:.1f} %" if cell.summary.n > 1 else ""
    value = f"{show(cell.typical, spec.unit)}{spread}"
    if cell.estimate is None:
        return [value, "", "baseline" if row.peer == table.baseline else ""]
    word = "control" if row.peer in table.controls else verdict_word(cell.verdict, spec)
    return [value, change(cell.estimate), f"{word} within 3 %" if word == "same" else word]


def _markdown_table(table: Table, figures: list[str]) -> list[str]:
    heads = ["allocator"]
    for name in figures:
        heads += [table.experiment.specs[name].label or name, f"against {table.baseline}", "verdict"]
    rows = []
    for row in table.rows:
        failed = [f"**{row.status}**: {row.detail}", *[""] * (len(heads) - 2)]
        good = [cell for name in figures for cell in cells_of(table, row, name)]
        rows.append([row.peer, *(good if row.status == "ok" else failed)])
    runs = max((row.runs for row in table.rows), default=0)
    said = [f"{runs} {'round' if runs == 1 else 'rounds'}, a fresh process each; brackets hold 95 % intervals"]
    said += [line] if (line := noise(table, figures)) else []
    below = [f"- {text}" for text in (*said, *table.experiment.caveats)]
    return [f"### {table.experiment.id}", "", verdict_of(table) + ".", "", grid(heads, rows), "", *below]


def noise(table: Table, figures: Sequence[str]) -> str:
    """What the baseline showed against itself, in words; "" without a control."""
    specs, floors = table.experiment.specs, table.floors
    shown = [f"{specs[n].label or n} {floors[n] * 100:.1f} %" for n in figures if not math.isinf(floors[n])]
    return f"noise floor (the baseline against itself): {', '.join(shown)}" if shown else ""


def markdown(tables: Sequence[Table]) -> str:
    """The tables of a result, with each experiment's headline figures."""
    lines: list[str] = []
    for table in tables:
        chosen = [f for f in headline(table.experiment) if f in table.experiment.specs]
        lines += [*_markdown_table(table, chosen), ""]
    return "\n".join(lines)


def write_markdown(_: Result, tables: Sequence[Table], path: Path) -> None:
    outputs.write_whole(path, markdown(tables))


# By the option that names the file.
FORMS = {"csv": write_csv, "markdown": write_markdown}
