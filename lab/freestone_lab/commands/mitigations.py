"""`freestone bench mitigations`: arguments in, table and file out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from freestone_lab import bench, documents_mitigations, mitigations, paths, render_text, session
from freestone_lab.errors import UserError

ROUNDS = 8


def command(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each experiment.")] = ROUNDS,
    seed: Annotated[int | None, typer.Option(help="Repeat an order of runs.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The result file (.json.gz).")] = None,
) -> None:
    """Measure what each mitigation of the hardened build costs: a library of each alone, beside the fast build.

    Examples:

        freestone bench mitigations -o docs/results/mitigations.json.gz && freestone docs
    """
    say = session.to_stderr
    wanted = mitigations.variants(mitigations.policy_text(paths.root()))
    chosen = mitigations.build(wanted, say)
    plan = bench.plan(rounds, session.fresh_seed() if seed is None else seed)
    plans = [(task, plan) for task in mitigations.tasks(say)]
    path = output or session.result_path("mitigations")
    with render_text.progress(render_text.console(stderr=True), len(plans)) as tell:
        outcome = session.run(plans, chosen, ["freestone", *sys.argv[1:]], tell, say=say)
    if not outcome.result.experiments:
        raise UserError("nothing was measured")
    session.store(outcome.result, path)
    typer.echo(documents_mitigations.table(outcome.result, wanted))
    typer.echo(f"written: {path}")
    if outcome.interrupted:
        raise typer.Exit(130)
