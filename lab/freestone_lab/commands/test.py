"""`freestone test`: every test of the repository, summed in one line."""

from __future__ import annotations

from typing import Annotated

import typer

from freestone_lab import packages, session, suite_tests
from freestone_lab.errors import UserError


def register(app: typer.Typer) -> None:
    known = [*(p.preset for p in suite_tests.PARTS), suite_tests.LAB]

    @app.command(help=f"Run the tests: all, or just some of {', '.join(known)}. The last line counts them.")
    def test(
        parts: Annotated[list[str] | None, typer.Argument(metavar="[PART...]", show_default=False)] = None,
    ) -> None:
        for name in parts or []:
            if name not in known:
                raise UserError(f"test: unknown part '{name}'; expected one of {', '.join(known)}")
        session.ensure_packages([*packages.missing_programs(), *packages.missing_peers()], session.to_stderr)
        tally = suite_tests.run_all(parts or [], session.to_stderr)
        for line in tally.problems:
            print(f"failed: {line}")
        print(tally.line())
        if not tally.good:
            raise typer.Exit(1)
