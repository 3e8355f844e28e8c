"""What compare, bench and replay share: how a sitting ends, and what it shows."""

from __future__ import annotations

from freestone_lab.analysis.claims import Table, tables
from freestone_lab.commands.places import Places
from freestone_lab.core.result import Result
from freestone_lab.engine.session import Outcome
from freestone_lab.report import card, terminal
from freestone_lab.report.overview import analyse

NOTHING_COMPARED = 1


def show(result: Result, analysed: list[Table], verdicts: bool = True) -> None:
    """Tables, proof and verdicts on stdout."""
    out = terminal.console()
    for table in analysed:
        terminal.show_table(out, table)
        out.print()
    if analysed:
        terminal.show_served(out, result)
    for table in analysed if verdicts else ():
        terminal.show_verdict(out, table)


def finish(outcome: Outcome, to: Places, ended: list[int], answer: bool = False) -> int:
    """Shows the tables, writes the files, and returns the status: 0, 1 if nothing could be compared, 128 + signal.

    With `answer`, the last lines are the card's instead of a verdict on each table.
    """
    result = outcome.result
    analysed = tables(result)
    written = to.write(result, analysed) if result.experiments else []
    found = card.of_result(result, analyse(result, analysed)) if answer and analysed else None
    show(result, analysed, verdicts=found is None)
    out = terminal.console()
    for name, why in outcome.not_run.items():
        out.print(f"not run: {name}: {why}", markup=False)
    terminal.show_written(out, written)
    if found is not None:
        out.print(f"\n{found.text()}", markup=False, soft_wrap=True)
    if ended:
        return ended[0]
    if outcome.interrupted:
        return 130
    return 0 if any(compared(table) for table in analysed) else NOTHING_COMPARED


def compared(table: Table) -> bool:
    """Whether some allocator besides the baseline has a figure here."""
    return any(row.status == "ok" and row.cells and not row.peer.startswith(table.baseline) for row in table.rows)
