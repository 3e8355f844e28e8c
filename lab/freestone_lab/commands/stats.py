"""`freestone stats` and `freestone top`: what a heap holds, once or live."""

from __future__ import annotations

from typing import Annotated

import typer

from freestone_lab import render_text, stats, top, units
from freestone_lab.errors import UserError

STATS = """What a heap holds: a running process, or a file that libfreestone wrote.

A process shows itself when it was started with FREESTONE_CONF=live_page:true; a file is what the option stats_file
writes (.json or .prom). Without an argument, every process of yours that shows itself is listed.

Examples:

    freestone stats 4711

    freestone stats /var/lib/node_exporter/server.prom
"""

TOP = """A running heap, live: parts, rates, size classes, threads.

Start the program with FREESTONE_CONF=live_page:true. Example:

    freestone top $(pidof server)
"""


def register(app: typer.Typer) -> None:
    @app.command("stats", help=STATS)
    def show(target: Annotated[str | None, typer.Argument(metavar="[PID|FILE]")] = None) -> None:
        out = render_text.console()
        if target is not None:
            out.print(top.picture(stats.find(target), out))
            return
        found = list(stats.running())
        if not found:
            raise UserError("no process shows itself: start one with FREESTONE_CONF=live_page:true, or name a file")
        out.print(top.listing(found))

    @app.command("top", help=TOP)
    def watch(
        pid: Annotated[int, typer.Argument(metavar="PID")],
        every: Annotated[str, typer.Option(help="Time between two pictures.")] = "1s",
        count: Annotated[int | None, typer.Option(min=1, help="End after so many pictures.")] = None,
    ) -> None:
        top.watch(render_text.console(), pid, units.seconds(every, "--every"), count)
