"""`freestone setup`: installs the Debian packages that the lab can use."""

from __future__ import annotations

from typing import Annotated

import typer

from freestone_lab import apps as applications
from freestone_lab import packages, session


def register(app: typer.Typer) -> None:
    @app.command()
    def setup(
        apps: Annotated[bool, typer.Option("--apps", help="Also the real programs of the benchmark suites.")] = False,
    ) -> None:
        """Install Debian's allocators and the programs of the tests; with --apps those of the suites."""
        wanted = list(dict.fromkeys([*packages.missing_peers(), *packages.missing_programs()]))
        left = packages.install(wanted)
        refused = [f"type: {packages.command_line(left)}"] if left else []
        if apps:
            refused += applications.install()
        for line in refused:
            session.to_stderr(f"not installed: {line}")
        if refused:
            raise typer.Exit(1)
        print(f"installed: {' '.join(wanted)}" if wanted else "nothing was missing")
