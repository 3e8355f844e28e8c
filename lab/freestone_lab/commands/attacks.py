"""`freestone bench attacks` (also `freestone attacks`): arguments in, a table and a file out."""

from __future__ import annotations

from argparse import Namespace

from rich.markup import escape
from rich.table import Table

from freestone_lab.attacks import enumerated
from freestone_lab.core import outputs, result_file
from freestone_lab.core.errors import UserError
from freestone_lab.peers import discover as peers
from freestone_lab.report.terminal import console, show_written


def run(options: Namespace) -> int:
    out = console(stderr=True)
    result = enumerated.run(
        peers.discover(only=options.names),
        options.rounds,
        options.first_seed,
        kind=options.kind,
        progress=lambda peer: out.print(escape(f"{peer}: {options.rounds} attacks of each kind")),
    )
    if not result.experiments and "not_judged" not in result.fingerprint:
        raise UserError(f"--kind '{options.kind}': expected a part of a kind's name, such as 'double free'")
    _show(enumerated.grid(result))
    path = options.output or outputs.new_name("attacks", ".json.gz")
    result_file.save(result, path)
    show_written(out, [path])
    return 0


def _show(grid: enumerated.Grid) -> None:
    out = console()
    table = Table(title=grid.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column(grid.headings[0], overflow="fold", no_wrap=True)
    for heading in grid.headings[1:]:
        table.add_column(heading.replace("-", "-\n"), justify="right", overflow="fold")
    for row in grid.rows:
        table.add_row(*(escape(cell) for cell in row))
    out.print(table)
    for note in grid.notes:
        out.print(escape(note))
