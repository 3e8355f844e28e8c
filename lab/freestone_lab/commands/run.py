"""`freestone run`: a program under libfreestone."""

from __future__ import annotations

from typing import Annotated

import typer

from freestone_lab import runner


def register(app: typer.Typer) -> None:
    @app.command(context_settings={"allow_interspersed_args": False})
    def run(
        command: Annotated[list[str] | None, typer.Argument(metavar="[--] CMD ARG...", show_default=False)] = None,
        stats: Annotated[
            bool, typer.Option("--stats", help="Print the allocator's statistics at exit, to stderr.")
        ] = False,
        hardened: Annotated[bool, typer.Option("--hardened", help="Use the hardened build.")] = False,
    ) -> None:
        """Run CMD under libfreestone; the exit status is CMD's.

        Refuses programs that a preloaded library cannot serve: static ones, set-uid ones, ones with a malloc of
        their own.

        Examples:

            freestone run -- python3 app.py

            freestone run --stats -- ./server --port 8080
        """
        runner.execute(runner.prepare(command or [], stats=stats, hardened=hardened))
