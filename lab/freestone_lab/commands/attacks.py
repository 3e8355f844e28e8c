"""`freestone bench attacks` (also `freestone attacks`): arguments in, tables and files out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from freestone_lab import attacks, attacks_table, model, paths, units
from freestone_lab.errors import UserError
from freestone_lab.render_text import console, show_written


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Allocators: names or NAME=path.so; all when none is named, and `nocheck`, which checks nothing."
        ),
    ] = None,
    case: Annotated[list[str] | None, typer.Option("--case", help="A case, family or wildcard. May repeat.")] = None,
    size: Annotated[list[str] | None, typer.Option("--size", help="small, medium or large. May repeat.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each case and size.", min=1)] = attacks.SEEDS,
    first_seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1,
    quick: Annotated[bool, typer.Option("--quick", help=f"{attacks.QUICK_SEEDS} seeds.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes at a time.", min=1)] = 2,
    details: Annotated[
        list[str] | None, typer.Option("--details", help="List what got through under this allocator. May repeat.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The result file (.json or .json.gz).")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the tables as Markdown.")] = None,
    gate: Annotated[
        str | None,
        typer.Option(help="NAME=PERCENT: exit 1 below that share, or at any false alarm. Repeatable by comma."),
    ] = None,
    list_cases: Annotated[bool, typer.Option("--list", help="Only list the cases.")] = False,
) -> None:
    """Attack allocators: misuse in many forms, each in a process of its own, after its bug-free twin.

    Examples:

        freestone bench attacks

        freestone bench attacks --quick freestone-hardened glibc --details freestone-hardened

        freestone bench attacks --case double-free --case 'overflow_*_1' --size small
    """
    program = attacks.build_program()
    cases = attacks.select_cases(attacks.load_cases(program), case or ())
    if list_cases:
        _list(cases)
        return
    sizes = _checked_sizes(size)
    gates = _gates(gate)
    chosen = attacks.discover(names or (), program)
    known = {peer.name for peer in chosen}
    for wanted in (*(details or ()), *gates):
        if wanted not in known:
            raise UserError(f"{wanted!r} is not attacked here; expected one of {', '.join(sorted(known))}")
    result = attacks.run(
        chosen,
        cases,
        attacks.QUICK_SEEDS if quick else seeds,
        sizes,
        jobs,
        first_seed=first_seed,
        progress=_Reporter(len(chosen)),
    )
    _show(result, details or [])
    written = [output or paths.results_dir() / f"attacks-{result.created.replace(':', '')}.json.gz"]
    model.save(result, written[0])
    if markdown is not None:
        markdown.write_text(attacks_table.markdown(result, details or ()))
        written.append(markdown)
    show_written(console(stderr=True), written)
    if not _passes(result, gates):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Adds `freestone attacks`, the short form of `freestone bench attacks`."""
    app.command("attacks", hidden=True)(command)


class _Reporter:
    """Says on standard error, at most every five seconds, how far the run has come and how long it will take."""

    def __init__(self, peers_in_all: int) -> None:
        self._out = console(stderr=True)
        self._peers = peers_in_all
        self._seen: list[str] = []
        self._began = self._last = time.monotonic()

    def __call__(self, peer: str, done: int, pairs: int) -> None:
        if peer not in self._seen:
            self._seen.append(peer)
        now = time.monotonic()
        if now - self._last < 5:
            return
        self._last = now
        share = (len(self._seen) - 1 + done / pairs) / self._peers
        left = (now - self._began) * (1 - share) / share
        text = f"[{len(self._seen)}/{self._peers}] {peer}: {done} of {pairs} cases and sizes"
        self._out.print(escape(f"{text}, about {units.words(left)} left"))


def _checked_sizes(given: list[str] | None) -> tuple[str, ...]:
    for one in given or ():
        if one not in attacks.SIZES:
            raise UserError(f"--size {one!r} is unknown; expected {', '.join(attacks.SIZES)}")
    return tuple(given) if given else attacks.SIZES


def _gates(text: str | None) -> dict[str, float]:
    gates: dict[str, float] = {}
    for part in (text or "").split(",") if text else ():
        name, separator, percent = part.partition("=")
        try:
            gates[name.strip()] = float(percent) / 100
        except ValueError:
            separator = ""
        if not separator:
            raise UserError(f"--gate {part!r} is not understood; expected NAME=PERCENT, for example freestone=65")
    return gates


def _passes(result: model.Result, gates: dict[str, float]) -> bool:
    out = console(stderr=True)
    passed = True
    for name, least in gates.items():
        share = attacks_table.defended_share(result, name)
        false_alarms = attacks_table.totals(result, name)["false_alarm"]
        shown = "nothing" if share is None else attacks_table.percent(share)
        if share is None or share < least:
            out.print(f"{name}: {shown} defended, below the gate of {least * 100:g} %", style="red")
            passed = False
        if false_alarms:
            out.print(f"{name}: {false_alarms} false alarms", style="red")
            passed = False
    return passed


def _show(result: model.Result, details: list[str]) -> None:
    out = console()
    grids = [attacks_table.summary(result), attacks_table.by_family(result)]
    grids += [attacks_table.escape_grid(result, peer, apart=apart) for peer in details for apart in (False, True)]
    for grid in grids:
        table = Table(title=grid.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        numeric = grid.headings[-1] != "for example"
        for index, heading in enumerate(grid.headings):
            justify: Literal["left", "right"] = "right" if numeric and index else "left"
            table.add_column(heading.replace("-", "-\n"), justify=justify, overflow="fold", no_wrap=index == 0)
        for row in grid.rows:
            table.add_row(*(escape(cell) for cell in row))
        out.print(table)
        for note in grid.notes:
            out.print(escape(note))
        out.print()
    for note in attacks_table.apart_notes(result):
        out.print(escape(f"apart: {note}"), style="dim")


def _list(cases: list[attacks.AttackCase]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("case", "family", "sizes", "what it does"):
        table.add_column(heading, overflow="fold")
    for case in cases:
        apart = f" (apart: {', '.join(case.apart_sizes)})" if case.apart_sizes else ""
        table.add_row(case.id, case.family, ", ".join(case.sizes) + apart, escape(case.about))
    console().print(table)
