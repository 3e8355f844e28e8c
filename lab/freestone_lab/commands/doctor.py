"""`freestone doctor`: is this machine fit to measure, and why not."""

from __future__ import annotations

import typer

from freestone_lab import doctor as examiner
from freestone_lab import render_text


def register(app: typer.Typer) -> None:
    @app.command()
    def doctor() -> None:
        """Is this machine fit to measure, and if not, why.

        Exit status 1 when figures of time could not be trusted now.
        """
        with render_text.progress(render_text.console(stderr=True), 1) as tell:
            findings = examiner.examine(tell)
        render_text.show_findings(render_text.console(), findings)
        if any(f.state == "bad" for f in findings):
            raise typer.Exit(1)
