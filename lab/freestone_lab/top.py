"""The pictures of `freestone stats` and `freestone top`: a heap as tables and bars, and how it changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from freestone_lab import stats
from freestone_lab.errors import UserError
from freestone_lab.stats import Snapshot, bytes_text

COLOURS = ("green", "cyan", "blue", "magenta", "yellow", "bright_black")
BLOCKS = " ▁▂▃▄▅▆▇█"
HISTORY = 60
ROWS_SHOWN = 12
ROWS_LEAST = 3
ROWS_ABOVE = 18  # lines of the picture that are not size classes, when the tables stand beside each other


@dataclass
class History:
    """The last snapshots of one process, for rates and the curve."""

    snapshots: list[Snapshot] = field(default_factory=list)

    def add(self, snapshot: Snapshot) -> None:
        if not self.snapshots or snapshot.updated_ms != self.snapshots[-1].updated_ms:
            self.snapshots = [*self.snapshots[-HISTORY + 1 :], snapshot]

    def rate(self, name: str) -> float | None:
        """The change of a figure per second between the last two snapshots."""
        if len(self.snapshots) < 2:
            return None
        before, now = self.snapshots[-2:]
        seconds = (now.updated_ms - before.updated_ms) / 1000
        return (now.figures.get(name, 0) - before.figures.get(name, 0)) / seconds if seconds > 0 else None

    def curve(self, name: str) -> str:
        """The figure's course as one line of blocks, from 0 to the highest value."""
        values = [s.figures.get(name, 0) for s in self.snapshots]
        top = max(values, default=0)
        return "".join(BLOCKS[round(v / top * (len(BLOCKS) - 1))] for v in values) if top > 0 else ""


def bar(snapshot: Snapshot, width: int) -> Text:
    """What the charged bytes are made of, `width` letters wide. Every part that is not 0 has at least one letter."""
    total = sum(size for _, size in snapshot.parts())
    line = Text()
    for (_, size), colour in zip(snapshot.parts(), COLOURS, strict=True):
        if size > 0 and total > 0:
            line.append("█" * max(1, round(size / total * width)), style=colour)
    line.truncate(width)
    return line


def columns(*names: str, left: int = 0) -> Table:
    """A table of numbers, of which the first `left` columns are words. No value is broken over lines."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(names):
        table.add_column(name, justify="left" if number < left else "right", no_wrap=True)
    return table


def memory(snapshot: Snapshot, history: History | None = None) -> Table:
    table = columns("memory", "size", "share", "change/s", left=1)
    charged = max(snapshot.figure("charged_bytes"), 1)

    def row(label: str, size: int, figure: str, style: str = "") -> None:
        rate = history.rate(figure) if history is not None else None
        changed = "" if not rate else f"{'+' if rate > 0 else '-'}{bytes_text(abs(rate))}"
        table.add_row(Text(label, style=style), bytes_text(size), f"{size / charged:.1%}", changed)

    for part, colour in zip(stats.PARTS, COLOURS, strict=True):
        row(f"■ {part}", snapshot.figure(stats.PARTS[part]), stats.PARTS[part], colour)
    row("charged", snapshot.figure("charged_bytes"), "charged_bytes", "bold")
    return table


def facts(snapshot: Snapshot) -> Table:
    table = columns("", "", left=1)
    table.show_header = False
    hard, soft = snapshot.figure("limit_hard_bytes"), snapshot.figure("limit_soft_bytes")
    rows = [
        ("peak of charged", bytes_text(snapshot.figure("peak_bytes"))),
        ("resident", bytes_text(snapshot.figure("resident_bytes"))),
        ("retained", bytes_text(snapshot.figure("clean_bytes"))),
        ("given back", bytes_text(snapshot.figure("purged_bytes"))),
        ("soft limit", bytes_text(soft) if soft else "none"),
        ("hard limit", bytes_text(hard) if hard else "none"),
        ("live blocks", f"{snapshot.figure('live_blocks'):,}"),
        ("threads", f"{snapshot.figure('threads'):,}"),
        ("failed allocations", f"{snapshot.figure('failed_allocations'):,}"),
        ("system calls", f"{sum(snapshot.system_calls.values()):,}"),
    ]
    for label, value in rows:
        table.add_row(label, value)
    return table


def classes(snapshot: Snapshot, shown: int) -> Table:
    table = columns("block", "live", "bytes", "cached")
    largest = sorted(snapshot.classes, key=lambda c: c.bytes * c.live, reverse=True)[:shown]
    for c in largest:
        table.add_row(f"{c.bytes:,}", f"{c.live:,}", bytes_text(c.bytes * c.live), f"{c.cached:,}")
    return table


def threads(snapshot: Snapshot, shown: int) -> Table:
    table = columns("thread", "cached", "of", "slow paths")
    for t in sorted(snapshot.threads, key=lambda t: t.cached_bytes, reverse=True)[:shown]:
        table.add_row(str(t.id), bytes_text(t.cached_bytes), bytes_text(t.capacity_bytes), f"{t.slow_paths:,}")
    return table


def title(snapshot: Snapshot) -> Text:
    version = f"  freestone {snapshot.version} ({snapshot.build})" if snapshot.version else ""
    return Text.assemble((f"{snapshot.program} ", "bold"), f"process {snapshot.pid}", (version, "bright_black"))


def beside(console: Console, *tables: Table) -> RenderableType:
    """The tables in a row, or below each other when the terminal is too narrow for it."""
    widths = [Measurement.get(console, console.options.update(width=200), table).maximum for table in tables]
    gap = min(4, (console.width - sum(widths)) // max(1, len(tables) - 1))
    if gap < 2:
        return Group(*[part for table in tables for part in (table, Text())][:-1])
    grid = Table.grid(padding=(0, gap))
    grid.add_row(*tables)
    return grid


def picture(snapshot: Snapshot, console: Console, history: History | None = None) -> RenderableType:
    """One process on one screen."""
    rows = min(ROWS_SHOWN, max(ROWS_LEAST, console.height - ROWS_ABOVE)) if console.is_terminal else ROWS_SHOWN
    below = [classes(snapshot, rows), *([threads(snapshot, rows)] if snapshot.threads else [])]
    above = beside(console, memory(snapshot, history), facts(snapshot))
    parts = [title(snapshot), bar(snapshot, min(console.width, 100)), Text(), above, Text(), beside(console, *below)]
    if history is not None and len(history.snapshots) > 1:
        most = bytes_text(max(s.figure("charged_bytes") for s in history.snapshots))
        curve = history.curve("charged_bytes")[-(console.width - len(f"charged   0 to {most}")) :]
        parts += [Text(), Text.assemble(("charged ", "bold"), curve, (f"  0 to {most}", "bright_black"))]
    return Group(*parts)


def listing(snapshots: Sequence[Snapshot]) -> Table:
    table = columns("process", "program", "live", "charged", "resident", "threads", left=2)
    for s in sorted(snapshots, key=lambda s: s.figure("charged_bytes"), reverse=True):
        sizes = (bytes_text(s.figure(name)) for name in ("live_bytes", "charged_bytes", "resident_bytes"))
        table.add_row(str(s.pid), s.program, *sizes, str(s.figure("threads")))
    return table


def watch(
    console: Console, pid: int, seconds: float, count: int | None, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Shows a process until it ends, Ctrl-C, or `count` pictures. Without a terminal the pictures follow each other."""
    history = History()
    shown = 0
    history.add(stats.from_process(pid))
    with Live(console=console, auto_refresh=False, screen=console.is_terminal and count is None) as live:
        while True:
            now = history.snapshots[-1]
            age = stats.age_seconds(now)
            note = f"unchanged for {age:.0f} s: the program takes no slow path" if age > 3 else ""
            scene = Group(picture(now, console, history), Text(note, style="bright_black"))
            if console.is_terminal:
                live.update(scene, refresh=True)
            else:
                console.print(scene)
            shown += 1
            if count is not None and shown >= count:
                return
            sleep(seconds)
            try:
                history.add(stats.from_process(pid))
            except UserError:
                if stats.is_running(pid):
                    raise
                break
    console.print(f"process {pid} has ended")
