"""`freestone bench attacks` (also `freestone attacks`): arguments in, a table and a file out."""

from argparse import Namespace

from rich.markup import escape

from freestone_lab.attacks import enumerated
from freestone_lab.core import outputs, result_file
from freestone_lab.core.errors import UserError
from freestone_lab.peers import discover as peers
from freestone_lab.report.terminal import console, show_grid, show_written


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
    grid, shown = enumerated.grid(result), console()
    show_grid(shown, grid.headings, grid.rows, grid.title)
    for note in grid.notes:
        shown.print(escape(note))
    path = options.output or outputs.new_name("attacks", ".json.gz")
    result_file.save(result, path)
    show_written(out, [path])
    return 0
