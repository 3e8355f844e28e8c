"""`freestone leaks`: blocks that a program allocated and that nothing points to at its end."""

from __future__ import annotations

from typing import Annotated

import typer

from freestone_lab import leaks as search


def register(app: typer.Typer) -> None:
    @app.command(context_settings={"allow_interspersed_args": False})
    def leaks(
        command: Annotated[list[str], typer.Argument(metavar="[--] CMD ARG...", show_default=False)],
        sampled: Annotated[
            bool, typer.Option("--sampled", help="Look at samples instead of at every block: for long runs.")
        ] = False,
        error: Annotated[
            int, typer.Option("--error", min=0, max=255, help="Exit status when something was lost; 0: CMD's own.")
        ] = 23,
        depth: Annotated[int, typer.Option("--depth", min=1, help="Calls shown per place.")] = 16,
    ) -> None:
        """Run CMD and report the blocks that it lost, with the call stacks that allocated them.

        A block is lost when nothing in the program's memory points to it at exit. The exit status is CMD's, or
        that of --error when something was lost.

        Examples:

            freestone leaks -- ./server --selftest

            freestone leaks --sampled --error 0 -- python3 app.py
        """
        done = search.run(command, exact=not sampled)
        for process in done.processes:
            for line in search.describe(process, depth):
                typer.echo(line, err=True)
        raise typer.Exit(error if done.found and error else done.exit_status)
