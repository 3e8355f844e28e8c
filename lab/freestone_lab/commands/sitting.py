"""What compare and bench share: where results go, how they end, and what they show."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from freestone_lab.analysis.claims import Table, tables
from freestone_lab.core import outputs
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import save
from freestone_lab.engine import session
from freestone_lab.engine.session import Outcome
from freestone_lab.report import export, terminal, write_report

NOTHING_COMPARED = 1

Write = Callable[[Result, list[Table], Path], None]


def measuring_s(budget_s: float) -> float:
    """What of a budget is for measuring; the rest draws the page."""
    return max(budget_s * 0.6, budget_s - max(4.0, budget_s * 0.05))


@dataclass
class Places:
    """The files of one sitting. All are tried when this is made, before anything is measured."""

    result: Path
    page: Path
    others: Mapping[Path, Write] = field(default_factory=dict)

    def keep(self, result: Result) -> None:
        """Stores the result so far, somewhere else when its place fails."""
        at = outputs.write(self.result, lambda place: save(result, place), session.to_stderr)
        self.result = at or self.result

    def write(self, result: Result, analysed: list[Table]) -> list[Path]:
        """Everything that was asked for; the files that could be written, the result first."""
        self.keep(result)
        made: list[Path | None] = [self.result]
        for path, make in self.others.items():
            made.append(outputs.write(path, partial(make, result, analysed), session.to_stderr))
        page = partial(write_report, [result], tables=[analysed])
        made.append(outputs.write(self.page, page, session.to_stderr))
        return [path for path in made if path is not None]


def _csv(result: Result, analysed: list[Table], path: Path) -> None:
    with path.open("w", newline="") as file:
        export.write_csv(result, file)


def _markdown(result: Result, analysed: list[Table], path: Path) -> None:
    path.write_text(export.markdown(analysed))


def _google_benchmark(result: Result, analysed: list[Table], path: Path) -> None:
    export.write_google_benchmark(result, path)


def places(kind: str, options: Namespace) -> Places:
    """Where everything goes: what was asked for, and the rest in the folder that the user stands in."""
    say = session.to_stderr
    result = outputs.usable(options.json or outputs.new_name(kind), say)
    page = options.report or result.with_name(result.name.removesuffix(".gz")).with_suffix(".html")
    asked = [(options.csv, _csv), (options.markdown, _markdown), (options.gbench, _google_benchmark)]
    others = {outputs.usable(path, say): write for path, write in asked if path is not None}
    return Places(result, outputs.usable(page, say), others)


def show(result: Result, analysed: list[Table]) -> None:
    """Tables, proof and verdicts on stdout."""
    out = terminal.console()
    for table in analysed:
        terminal.show_table(out, table)
        out.print()
    if analysed:
        terminal.show_served(out, result)
    for table in analysed:
        terminal.show_verdict(out, table)


def finish(outcome: Outcome, to: Places, ended: list[int]) -> int:
    """Shows the tables, writes the files, and says how it ended: 0, 1 when nothing could be compared, 128 + signal."""
    result = outcome.result
    analysed = tables(result)
    written = to.write(result, analysed) if result.experiments else []
    show(result, analysed)
    out = terminal.console()
    for name, why in outcome.not_run.items():
        out.print(f"not run: {name}: {why}", markup=False)
    terminal.show_written(out, written)
    if ended:
        return ended[0]
    if outcome.interrupted:
        return 130
    return 0 if any(compared(table) for table in analysed) else NOTHING_COMPARED


def compared(table: Table) -> bool:
    """Whether some allocator besides the baseline has a figure here."""
    return any(row.status == "ok" and row.cells and not row.peer.startswith(table.baseline) for row in table.rows)
