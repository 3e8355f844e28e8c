"""`freestone compare`: which allocator is best for this program, on this machine."""

from __future__ import annotations

import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from freestone_lab import defaults, export, packages, render_text, session, target, units
from freestone_lab.compare import tables
from freestone_lab.errors import UserError
from freestone_lab.method import Plan, Task
from freestone_lab.model import Result

QUICK_BUDGET_S = 15.0
BUDGET_S = 60.0


def plan_from(
    budget: str | None, precision: str | None, rounds: int | None, quick: bool, counts: bool, seed: int | None
) -> Plan:
    """The stop rule that the options describe; UserError names an option that makes no sense."""
    if rounds is not None and rounds < 1:
        raise UserError(f"--rounds {rounds}: expected at least 1")
    budget_s = units.seconds(budget, "--budget") if budget else QUICK_BUDGET_S if quick else BUDGET_S
    wanted = units.fraction(precision, "--precision") if precision else 0.01
    if precision and not budget:
        budget_s = 600.0
    return Plan(
        min_rounds=rounds or 10,
        max_rounds=rounds or 100,
        budget_s=None if rounds and not budget else budget_s,
        precision=None if rounds else wanted,
        seed=session.fresh_seed() if seed is None else seed,
        counts=counts,
    )


def user_task(
    command: list[str], stdin: Path | None, outputs: list[Path], expect_exit: int, timeout: str | None
) -> tuple[Task, list[Path]]:
    """The user's command as a task, and the programs behind it."""
    argv, unwrapped = target.behind_shim(command)
    found = target.resolve(argv)
    if stdin is not None and not stdin.is_file():
        raise UserError(f"--stdin '{stdin}': no such file")
    task = Task(
        id=Path(command[0]).name,
        workload=shlex.join(command),
        argv=tuple(argv),
        cwd=Path.cwd(),
        stdin=stdin,
        output_files=tuple(outputs),
        expect_exit=expect_exit,
        timeout_s=units.seconds(timeout, "--timeout") if timeout else None,
        caveats=(*([unwrapped] if unwrapped else []), *found.caveats),
    )
    return task, [found.path, *found.interpreters]


def show(result: Result, path: Path | None, extra: list[Path]) -> None:
    """Tables, proof and verdict on stdout."""
    out = render_text.console()
    analysed = tables(result)
    for table in analysed:
        render_text.show_table(out, table)
        out.print()
    render_text.show_served(out, result)
    for table in analysed:
        render_text.show_verdict(out, table)
    render_text.show_written(out, [*([path] if path else []), *extra])


def write_exports(
    result: Result, json: Path | None, csv: Path | None, markdown: Path | None, gbench: Path | None
) -> list[Path]:
    """Writes what was asked for; returns the files."""
    written = []
    if json:
        written.append(session.store(result, json))
    if csv:
        with csv.open("w", newline="") as file:
            export.write_csv(result, file)
        written.append(csv)
    if markdown:
        markdown.write_text(export.markdown(result))
        written.append(markdown)
    if gbench:
        export.write_google_benchmark(result, gbench)
        written.append(gbench)
    return written


def register(app: typer.Typer) -> None:
    @app.command(context_settings={"allow_interspersed_args": False})
    def compare(
        command: Annotated[list[str] | None, typer.Argument(metavar="[--] CMD ARG...", show_default=False)] = None,
        with_: Annotated[
            list[str] | None,
            typer.Option(
                "--with", metavar="NAME|NAME=path.so", help="Add an allocator (repeatable; `all` adds every one found)."
            ),
        ] = None,
        only: Annotated[
            list[str] | None,
            typer.Option("--only", metavar="NAME|NAME=path.so", help="Compare glibc with just these (repeatable)."),
        ] = None,
        budget: Annotated[str | None, typer.Option(metavar="60s", help="Stop after this long, in all.")] = None,
        precision: Annotated[
            str | None, typer.Option(metavar="1%", help="Stop when every interval is this narrow (within 10 min).")
        ] = None,
        rounds: Annotated[int | None, typer.Option(help="Exactly this many rounds.")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="A budget of 15 s.")] = False,
        counts: Annotated[
            bool, typer.Option("--counts", help="Also count instructions (callgrind) and system calls (strace).")
        ] = False,
        stdin: Annotated[Path | None, typer.Option(metavar="FILE", help="What CMD reads; default nothing.")] = None,
        output_file: Annotated[
            list[Path] | None, typer.Option(metavar="FILE", help="A file that CMD writes, compared too.")
        ] = None,
        expect_exit: Annotated[int, typer.Option(metavar="N", help="The exit status that counts as success.")] = 0,
        timeout: Annotated[
            str | None, typer.Option(metavar="30s", help="Longest run; default ten times glibc's.")
        ] = None,
        seed: Annotated[int | None, typer.Option(help="Repeat an order of runs.")] = None,
        json: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
        csv: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
        markdown: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
        gbench: Annotated[Path | None, typer.Option(metavar="FILE", help="Google-Benchmark JSON.")] = None,
        report: Annotated[Path | None, typer.Option("-o", "--report", metavar="report.html")] = None,
    ) -> None:
        """Which allocator is best for CMD? Time and memory under each, with evidence.

        Without CMD, three real programs of this machine are run, with --quick one.

        Examples:

            freestone compare -- python3 my_script.py

            freestone compare --quick --with mine=./libmine.so -- ./server --selftest

            freestone compare --budget 5m --counts -o report.html -- make -B
        """
        plan = plan_from(budget, precision, rounds, quick, counts, seed)
        say = session.to_stderr
        with tempfile.TemporaryDirectory(prefix="freestone-out-") as scratch:
            if command:
                task, programs = user_task(command, stdin, output_file or [], expect_exit, timeout)
                tasks = [task]
            else:
                session.ensure_packages(packages.missing_programs(["sqlite3", "g++"]), say)
                tasks = defaults.tasks(Path(scratch), quick)
                programs = [target.resolve(t.argv).image for t in tasks]
            session.ensure_packages(packages.missing_peers(), say)
            session.ensure_library(say)
            chosen = session.choose_peers(with_ or [], only or [])
            with render_text.progress(render_text.console(stderr=True), len(tasks)) as tell:
                each = replace(plan, budget_share=len(tasks))
                outcome = session.run(
                    [(t, each) for t in tasks], chosen, ["freestone", *sys.argv[1:]], tell, programs=programs, say=say
                )  # fmt: skip
        result = outcome.result
        if not result.experiments:
            raise UserError("nothing was measured")
        path = session.store(result, session.result_path("compare"))
        written = write_exports(result, json, csv, markdown, gbench)
        page = session.write_report(result, report or path.with_suffix(".html"), say)
        show(result, path, [*written, *([page] if page else [])])
        if outcome.interrupted:
            raise typer.Exit(130)
