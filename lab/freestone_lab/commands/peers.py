"""`freestone peers`, `freestone peers install`, `freestone peers probe`: arguments in, tables or JSON out."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from freestone_lab import peers, peers_install, probe, render_text
from freestone_lab.model import Peer

_With = Annotated[list[str] | None, typer.Option("--with", help="Also this allocator: NAME=path.so. May repeat.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def register(app: typer.Typer) -> None:
    """Adds the command group to `app`."""
    group = typer.Typer(help="The allocators of this machine: list, install, probe.", invoke_without_command=True)

    @group.callback()
    def listing(context: typer.Context, given: _With = None, as_json: _Json = False) -> None:
        """List every allocator that a program can be run under.

        Examples:

            freestone peers

            freestone peers --with mine=./libmine.so --json
        """
        if context.invoked_subcommand is None:
            found = peers.discover(given or ())
            if as_json:
                print(json.dumps([dataclasses.asdict(peer) for peer in found], indent=1))
            else:
                _print_peers(found)

    @group.command()
    def install(
        names: Annotated[list[str] | None, typer.Argument(help="Which; all when none is named.")] = None,
        force: Annotated[bool, typer.Option("--force", help="Build again what is already here.")] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
        as_json: _Json = False,
    ) -> None:
        """Install Debian's allocators and build the newest releases of the others.

        Examples:

            freestone peers install

            freestone peers install mimalloc jemalloc scudo
        """
        console = Console(stderr=True)
        outcomes = peers_install.install(
            names or (), force=force, dry_run=dry_run, progress=lambda text: console.print(f"  {text} …", style="dim")
        )
        if as_json:
            print(json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=1))
        else:
            _print_outcomes(outcomes)
        if any(outcome.status == "failed" for outcome in outcomes):
            raise typer.Exit(1)

    @group.command("probe")
    def probe_command(
        names: Annotated[list[str] | None, typer.Argument(help="Which: names or NAME=path.so; all when none.")] = None,
        as_json: _Json = False,
    ) -> None:
        """Measure how each allocator behaves: names, zero sizes, alignment, errno, usable sizes, truth of statistics.

        Examples:

            freestone peers probe

            freestone peers probe glibc freestone --json
        """
        chosen = peers.discover(only=names) if names else [peer for peer in peers.discover() if peer.kind != "control"]
        answers = [probe.ask(peer) for peer in chosen]
        if as_json:
            print(json.dumps([_as_json(found) for found in answers], indent=1))
        else:
            _print_matrix(answers)

    app.add_typer(group, name="peers")


def _as_json(found: probe.PeerAnswers) -> dict[str, object]:
    return {
        "peer": found.peer.name,
        "version": found.peer.version,
        "build_id": found.peer.build_id,
        "matrix": probe.matrix(found),
        "answers": found.answers,
        "failures": found.failures,
    }


def _print_peers(found: list[Peer]) -> None:
    headings = ("allocator", "version", "from", "build-id", "names", "path")
    rows = [
        (p.name, p.version, p.origin, p.build_id[:12], str(len(p.exports)), p.path or "(the program's own)")
        for p in found
    ]
    render_text.show_grid(render_text.console(), headings, rows)
    missing = [name for name in peers_install.installable() if name not in _present(found)]
    if missing:
        Console(stderr=True).print(
            f"not here: {', '.join(missing)}; `freestone peers install` brings them", style="dim"
        )


def _present(found: list[Peer]) -> set[str]:
    names = {peer.name for peer in found}
    return names | ({peers_install.CONTROLS_NAME} if any(peer.kind == "control" for peer in found) else set())


def _print_outcomes(outcomes: list[peers_install.Outcome]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("allocator", "outcome", "detail"):
        table.add_column(heading, overflow="fold")
    for outcome in outcomes:
        style = "red" if outcome.status == "failed" else None
        table.add_row(outcome.name, outcome.status, outcome.detail, style=style)
    Console().print(table)


def _print_matrix(answers: list[probe.PeerAnswers]) -> None:
    console = render_text.console()
    for title, columns in probe.TABLES.items():
        rows = [(found.peer.name, *(column.judge(found) for column in columns)) for found in answers]
        render_text.show_grid(console, ["allocator", *(column.heading for column in columns)], rows, title)
        console.print()
    for found in answers:
        for remark in probe.remarks(found):
            console.print(f"{found.peer.name}: {remark}", style="dim", highlight=False)
