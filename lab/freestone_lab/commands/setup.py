"""`freestone setup`: installs the Debian packages that the lab can use."""

from __future__ import annotations

from typing import Annotated

import typer

from freestone_lab import bench_apps, packages, session


def register(app: typer.Typer) -> None:
    @app.command()
    def setup(
        apps: Annotated[bool, typer.Option("--apps", help="Also the real programs of the benchmark suites.")] = False,
    ) -> None:
        """Install Debian's allocators and the programs of the tests; with --apps those of the suites."""
        wanted = [*packages.missing_peers(), *packages.missing_programs()]
        if apps:
            wanted += bench_apps.missing_packages()
        if not wanted:
            print("everything is installed")
            return
        left = packages.install(list(dict.fromkeys(wanted)))
        installed = [name for name in dict.fromkeys(wanted) if name not in left]
        if installed:
            print(f"installed: {' '.join(installed)}")
        if left:
            session.to_stderr(f"not installed; type: {packages.command_line(left)}")
            raise typer.Exit(1)
