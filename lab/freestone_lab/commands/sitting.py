"""What advise, compare, bench and replay share: how a sitting runs, how it ends, and what it shows."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from freestone_lab.analysis.claims import Table, tables
from freestone_lab.commands.places import Places
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer, Result
from freestone_lab.core.signals import ends_are_kept
from freestone_lab.engine import preparation, session
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.plan import Plan, Task, base_environment
from freestone_lab.engine.session import Outcome
from freestone_lab.measure import proof
from freestone_lab.report import card, terminal
from freestone_lab.report.board import board
from freestone_lab.report.overview import analyse

NOTHING_COMPARED = 1
Answer = Literal["tables", "card", "card only"]


def hold(
    tasks: Sequence[tuple[Task, Plan]], chosen: Sequence[Peer], to: Places, budget: Budget, answer: Answer = "tables",
    programs: Sequence[Path] = (), way: str = "preload",
) -> int:  # fmt: skip
    """One sitting from its first run to its last line. The exit status.

    UserError for a library that the environment switches off, or gives options that it refuses.
    """
    for peer in chosen:
        if refused := proof.refusal(peer, base_environment({})):
            raise UserError(refused)
    command = ["freestone", *sys.argv[1:]]
    out = terminal.console(stderr=True)
    with ends_are_kept() as ended:
        if answer == "card only":
            with board(out) as (show_standing, tell):
                outcome = session.Sitting(
                    tasks, chosen, command, tell, programs=programs, keep=to.keep, budget=budget, board=show_standing,
                    say=lambda text: out.print(text, markup=False, soft_wrap=True),
                ).run()  # fmt: skip
        else:
            with terminal.progress(out, len(tasks)) as tell:
                outcome = session.Sitting(
                    tasks, chosen, command, tell, programs=programs, keep=to.keep, budget=budget,
                    say=preparation.to_stderr,
                ).run()  # fmt: skip
    if any(engine.nothing_to_win for engine in outcome.engines):
        experiment = outcome.engines[0].experiment
        terminal.show_card(terminal.console(), card.nothing_to_win(experiment, outcome.result.baseline))
        return 0
    if answer == "card only" and not outcome.result.experiments and not ended:
        raise UserError("nothing could be compared within the limit")
    return finish(outcome, to, ended, answer, way)


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


def finish(
    outcome: Outcome, to: Places, ended: Sequence[int], answer: Answer = "tables", way: str = "preload"
) -> int:  # fmt: skip
    """Shows the answer, writes the files, and returns the status: 0, 1 if nothing could be compared, 128 + signal.

    The answer is a verdict on each table, tables with the card as the last lines, or the card alone.
    """
    result = outcome.result
    analysed = tables(result)
    written = to.write(result, analysed) if result.experiments else []
    wanted = answer != "tables" and bool(analysed)
    page = to.page if to.page in written and answer == "card only" else None
    found = card.of_result(result, analyse(result, analysed), way, page) if wanted else None
    out = terminal.console()
    if answer != "card only" or found is None:
        show(result, analysed, verdicts=found is None)
        for name, why in outcome.not_run.items():
            out.print(f"not run: {name}: {why}", markup=False)
        terminal.show_written(out, written)
        if found is not None:
            out.print()
    if found is not None:
        terminal.show_card(out, found)
    if answer == "card only" and written:
        preparation.to_stderr(f"figures: {card.near(written[0])}")
    if ended:
        return ended[0]
    if outcome.interrupted:
        return 130
    return 0 if any(compared(table) for table in analysed) else NOTHING_COMPARED


def compared(table: Table) -> bool:
    """Whether some allocator besides the baseline has a figure here."""
    return any(row.status == "ok" and row.cells and not row.peer.startswith(table.baseline) for row in table.rows)
