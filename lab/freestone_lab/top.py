"""The pictures of `freestone stats` and `freestone top`: a heap as tables and bars, and how it changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from freestone_lab import stats
from freestone_lab.errors import UserError
from freestone_lab.stats import Snapshot, bytes_text

COLOURS = ("green", "cyan", "blue", "magenta", "yellow", "bright_black")
BLOCKS = " ▁▂▃▄▅▆▇█"
HISTORY = 60
CLASSES_SHOWN = 12
THREADS_SHOWN = 8


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


def memory(snapshot: Snapshot, history: History | None = None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("memory", "left"), ("size", "right"), ("share", "right"), ("change/s", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
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
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    hard, soft = snapshot.figure("limit_hard_bytes"), snapshot.figure("limit_soft_bytes")
    rows = [
        ("peak of charged", bytes_text(snapshot.figure("peak_bytes"))),
        ("resident", bytes_text(snapshot.figure("resident_bytes"))),
        ("retained", bytes_text(snapshot.figure("clean_bytes"))),
        ("given back", bytes_text(snapshot.figure("purged_bytes"))),
        ("limits soft, hard", f"{bytes_text(soft) if soft else 'none'}, {bytes_text(hard) if hard else 'none'}"),
        ("live blocks", f"{snapshot.figure('live_blocks'):,}"),
        ("threads", f"{snapshot.figure('threads'):,}"),
        ("failed allocations", f"{snapshot.figure('failed_allocations'):,}"),
        ("system calls", f"{sum(snapshot.system_calls.values()):,}"),
    ]
    for label, value in rows:
        table.add_row(label, value)
    return table


def classes(snapshot: Snapshot, shown: int = CLASSES_SHOWN) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("block", "live blocks", "live bytes", "cached"):
        table.add_column(name, justify="right")
    largest = sorted(snapshot.classes, key=lambda c: c.bytes * c.live, reverse=True)[:shown]
    for c in largest:
        table.add_row(f"{c.bytes:,}", f"{c.live:,}", bytes_text(c.bytes * c.live), f"{c.cached:,}")
    return table


def threads(snapshot: Snapshot, shown: int = THREADS_SHOWN) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("thread", "cached", "of", "refills and flushes"):
        table.add_column(name, justify="right")
    for t in sorted(snapshot.threads, key=lambda t: t.cached_bytes, reverse=True)[:shown]:
        table.add_row(str(t.id), bytes_text(t.cached_bytes), bytes_text(t.capacity_bytes), f"{t.slow_paths:,}")
    return table


def title(snapshot: Snapshot) -> Text:
    version = f"  freestone {snapshot.version} ({snapshot.build})" if snapshot.version else ""
    return Text.assemble((f"{snapshot.program} ", "bold"), f"process {snapshot.pid}", (version, "bright_black"))


def picture(snapshot: Snapshot, width: int, history: History | None = None) -> RenderableType:
    """One process on one screen."""
    beside = Table.grid(padding=(0, 4))
    beside.add_row(memory(snapshot, history), facts(snapshot))
    below = Table.grid(padding=(0, 4))
    below.add_row(classes(snapshot), threads(snapshot)) if snapshot.threads else below.add_row(classes(snapshot))
    parts: list[RenderableType] = [title(snapshot), bar(snapshot, min(width, 100)), Text(), beside, Text(), below]
    if history is not None and len(history.snapshots) > 1:
        parts += [Text(), Text.assemble(("charged ", "bold"), history.curve("charged_bytes"))]
    return Group(*parts)


def listing(snapshots: Sequence[Snapshot]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("process", "program"):
        table.add_column(name)
    for name in ("live", "charged", "resident", "threads"):
        table.add_column(name, justify="right")
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
            scene = Group(picture(now, console.width, history), Text(note, style="bright_black"))
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
