"""`freestone diff`: what changed between two results, with gates for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freestone_lab import diff as differ
from freestone_lab import render_text
from freestone_lab.model import load


def register(app: typer.Typer) -> None:
    @app.command()
    def diff(
        a: Annotated[Path, typer.Argument(metavar="A", help="The earlier result file.")],
        b: Annotated[Path, typer.Argument(metavar="B", help="The later result file.")],
        fail_if: Annotated[
            list[str] | None,
            typer.Option(
                "--fail-if",
                metavar="'time>3%'",
                help="Exit 1 when this figure got worse by more than that and than the noise floor (repeatable).",
            ),
        ] = None,
        peer: Annotated[
            list[str] | None, typer.Option("--peer", metavar="NAME", help="Only these allocators (repeatable).")
        ] = None,
        absolute: Annotated[
            bool, typer.Option("--absolute", help="Compare plain values, not ratios to the baseline.")
        ] = False,
    ) -> None:
        """What changed from result A to result B.

        Each allocator is compared through its ratio to the baseline of its own file, so that a slower machine does
        not look like a slower allocator.

        Examples:

            freestone diff main.json branch.json --fail-if 'time>3%' --fail-if 'memory>5%'

            freestone diff old.json new.json --peer freestone --absolute
        """
        gates = [differ.parse_gate(text) for text in fail_if or []]
        found = differ.compare(
            load(a), load(b), absolute=absolute, peers=peer or [], figures=[g.figure for g in gates]
        )  # fmt: skip
        objections = differ.failures(found, gates)
        render_text.show_changes(render_text.console(), found, objections)
        if objections:
            raise typer.Exit(1)
