"""`freestone bench`: the suites of workloads and real programs, under every allocator."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from freestone_lab import bench as bencher
from freestone_lab import render_text, session, units
from freestone_lab.apps import APPS
from freestone_lab.commands import attacks, compare, mitigations
from freestone_lab.errors import UserError
from freestone_lab.model import Result
from freestone_lab.suites import SUITES


class _SuitesUnlessNamed(TyperGroup):
    """Two subcommands stand beside the suites; anything else after `bench` names suites."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["attacks"], ["mitigations"]) else ["suites", *args])


def suites(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SUITE|WORKLOAD|APP...]", show_default=False)] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", metavar="NAME|NAME=path.so", help="Add an allocator (repeatable).")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME|NAME=path.so", help="Just glibc and these (repeatable).")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each experiment; default the suite's.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="40m", help="Divide this time over the experiments: fewer rounds, never fewer sizes."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat an order of runs.")] = None,
    no_null: Annotated[bool, typer.Option("--no-null", help="Leave out the null allocator.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Only list what there is.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    gbench: Annotated[Path | None, typer.Option(metavar="FILE", help="Google-Benchmark JSON.")] = None,
    report: Annotated[Path | None, typer.Option("-o", "--report", metavar="report.html")] = None,
) -> None:
    """Run suites (default: quick), single workloads or applications under every allocator.

    The null allocator, which never frees, stands in each table: its figures are the workload's own cost.
    `bench attacks` tests what allocators do against misuse.

    Examples:

        freestone bench

        freestone bench published -o published.html

        freestone bench full --budget 40m --json full.json.gz

        freestone bench lifetimes:threads=2,law=program --only jemalloc --rounds 20

        freestone bench attacks --quick
    """
    program = bencher.workload_program()
    if listing:
        render_text.show_suites(render_text.console(), SUITES, bencher.workloads(program), [a.name for a in APPS])
        return
    wanted = names or [bencher.DEFAULT_SUITE]
    say = session.to_stderr
    if rounds and budget:
        raise UserError("--rounds and --budget: expected one of them, the budget decides the rounds")
    sitting_s = units.seconds(budget, "--budget") if budget else None
    plan = bencher.plan(rounds, session.fresh_seed() if seed is None else seed)
    plans = [(task, plan) for task in bencher.select(wanted, program, say)]
    session.ensure_library(say)
    everyone = not with_ and not only and wanted != [bencher.DEFAULT_SUITE]
    chosen = session.choose_peers(["all"] if everyone else with_ or [], only or [])
    if not no_null:
        chosen = bencher.with_null(chosen)
    path = session.result_path("bench")
    say(bencher.forecast([task for task, _ in plans], chosen, plan, sitting_s))

    def keep(result: Result) -> None:
        session.store(result, path)

    with render_text.progress(render_text.console(stderr=True), len(plans)) as tell:
        outcome = session.run(
            plans, chosen, ["freestone", *sys.argv[1:]], tell, keep=keep, say=say, sitting_s=sitting_s
        )
    if not outcome.result.experiments:
        raise UserError("nothing was measured")
    session.store(outcome.result, path)
    written = compare.write_exports(outcome.result, json, csv, markdown, gbench)
    page = session.write_report(outcome.result, report or path.with_suffix(".html"), say)
    compare.show(outcome.result, path, [*written, *([page] if page else [])])
    if outcome.interrupted:
        raise typer.Exit(130)


def register(app: typer.Typer) -> None:
    group = typer.Typer(cls=_SuitesUnlessNamed, add_help_option=False)
    group.command("suites")(suites)
    group.command("attacks")(attacks.command)
    group.command("mitigations")(mitigations.command)
    app.add_typer(group, name="bench", help="Run suites, workloads or applications under every allocator.")
