"""The live standing of a measurement: time and memory of every allocator to the baseline, after each round."""

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table as Grid

from freestone_lab.analysis.claims import change
from freestone_lab.analysis.decision import Decision, Evidence
from freestone_lab.core import units
from freestone_lab.engine.plan import Progress
from freestone_lab.measure.load import PER_REQUEST

Show = Callable[[Evidence, Decision], None]
Tell = Callable[[Progress], None]


def standing(evidence: Evidence, decision: Decision) -> Grid:
    """The leaderboard, best first; fits 80 columns."""
    grid = Grid(box=None, pad_edge=False, title_justify="left", title=f"round {evidence.rounds}", title_style="dim")
    grid.add_column("allocator", max_width=24, no_wrap=True)
    words = {"cpu": "CPU time", PER_REQUEST: "CPU/request", "wall": "time"}
    grid.add_column(words.get(evidence.times[0], evidence.times[0]), no_wrap=True)
    grid.add_column("memory", no_wrap=True)
    base = evidence.baseline
    for name in sorted(evidence.names, key=lambda n: evidence.time(n, base).ratio):
        mark = "[green]>[/]" if name == decision.use else "[yellow]?[/]" if name in decision.open else " "
        if name == base:
            grid.add_row(f"{mark} {escape(name)}", "baseline", "baseline")
        else:
            figures = (evidence.times[0], evidence.memory_figure)
            grid.add_row(f"{mark} {escape(name)}", *(change(evidence.estimate(f, name, base)) for f in figures))
    return grid


@contextmanager
def board(out: Console) -> Iterator[tuple[Show, Tell]]:
    """On a terminal one picture that is drawn anew; elsewhere one line for each round."""
    if not out.is_terminal:

        def plain(evidence: Evidence, decision: Decision) -> None:
            waiting = f"; open: {', '.join(decision.open)}" if decision.open else "; settled"
            out.print(escape(f"round {evidence.rounds}: {decision.use} leads{waiting}"), soft_wrap=True)

        yield plain, lambda _: None
        return
    with Live(console=out, transient=True, auto_refresh=False) as live:
        last: list[Grid] = []

        def show(evidence: Evidence, decision: Decision) -> None:
            last[:] = [standing(evidence, decision)]
            live.update(last[0], refresh=True)

        def tell(progress: Progress) -> None:
            stage = "trying" if progress.round == 0 else f"round {progress.round}:"
            if last:
                last[0].caption = f"{stage} {progress.peer}"
                live.update(last[0], refresh=True)
            else:
                live.update(f"{stage} {escape(progress.peer)}", refresh=True)

        yield show, tell


def ask_for_more(seconds: float) -> float:
    """Enter grants the seconds; anything else ends. Nothing is asked where nobody can answer."""
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return 0.0
    prompt = f"\nNot settled yet: about {units.words(seconds)} more would do. Enter goes on, q ends: "
    print(prompt, end="", file=sys.stderr, flush=True)
    select.select([sys.stdin], [], [])
    return seconds * 1.2 if sys.stdin.readline() == "\n" else 0.0
