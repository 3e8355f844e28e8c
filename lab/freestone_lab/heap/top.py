"""The pictures of `freestone stats` and `freestone top`: a heap as tables and bars, and how it changes.

Plain text, coloured on a terminal. It needs only the standard library, so a look at a server installs nothing there.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TextIO

from freestone_lab.core.errors import UserError
from freestone_lab.heap import keys, names
from freestone_lab.heap import snapshot as stats
from freestone_lab.heap.snapshot import SizeClass, Snapshot, Thread, bytes_text

BOLD, DIM = 1, 90
COLOURS = (32, 36, 34, 35, 33, 90)  # green, cyan, blue, magenta, yellow, grey
BLOCKS = " ▁▂▃▄▅▆▇█"
MINUTE_MS = 60_000
LETTERS = 30  # the width of a course of the last minute, if the screen has room
WIDE_FROM = 84  # the width that the tables need without courses
RATES_FROM = 110  # the width that the lower tables need beside each other with their rates
ROWS_SHOWN = 12
ROWS_LEAST = 3
ROWS_ABOVE = 18  # lines of the picture that are not size classes, when the tables stand beside each other
GAP = 2  # blanks between the columns of a table
_STYLE = re.compile(r"\x1b\[\d*m")

Lines = list[str]


def styled(text: str, style: int) -> str:
    return f"\x1b[{style}m{text}\x1b[m" if text else ""


def width_of(line: str) -> int:
    """The width of a text in letters, as a terminal shows it."""
    return len(_STYLE.sub("", line))


@dataclass(frozen=True)
class Screen:
    """Where pictures go, and how much room they have there."""

    out: TextIO
    width: int
    height: int
    terminal: bool
    colour: bool

    @staticmethod
    def of_terminal() -> Screen:
        size = shutil.get_terminal_size((100, 40))
        terminal = sys.stdout.isatty()
        return Screen(sys.stdout, size.columns, size.lines, terminal, terminal and not os.environ.get("NO_COLOR"))

    def show(self, lines: Lines) -> None:
        text = "".join(line.rstrip() + "\n" for line in lines)
        self.out.write(text if self.colour else _STYLE.sub("", text))
        self.out.flush()

    @contextmanager
    def in_place(self, wanted: bool) -> Iterator[Callable[[Lines], None]]:
        """Shows each picture over the last one, on a page of the terminal that disappears afterwards."""
        if not (wanted and self.terminal):
            yield self.show
            return

        def over(lines: Lines) -> None:
            self.out.write("\x1b[H\x1b[J")
            self.show(lines[: self.height - 1])

        self.out.write("\x1b[?1049h\x1b[?25l")
        try:
            yield over
        finally:
            self.out.write("\x1b[?25h\x1b[?1049l")
            self.out.flush()


@dataclass
class History:
    """The snapshots of one process in the last minute, for rates and courses."""

    snapshots: list[Snapshot] = field(default_factory=list)

    def add(self, snapshot: Snapshot) -> None:
        if not self.snapshots or snapshot.updated_ms != self.snapshots[-1].updated_ms:
            kept = [s for s in self.snapshots if s.updated_ms >= snapshot.updated_ms - MINUTE_MS]
            self.snapshots = [*kept, snapshot]

    def rate(self, value: Callable[[Snapshot], float | None]) -> float | None:
        """The change of a value per second between the last two snapshots. None if one of them lacks it."""
        if len(self.snapshots) < 2:
            return None
        before, now = self.snapshots[-2:]
        seconds = (now.updated_ms - before.updated_ms) / 1000
        earlier, later = value(before), value(now)
        return (later - earlier) / seconds if seconds > 0 and earlier is not None and later is not None else None

    def course(self, name: str, letters: int = LETTERS) -> str:
        """The figure over the last minute as one line of blocks, from 0 to its highest. Unknown values are blank."""
        end = self.snapshots[-1].updated_ms if self.snapshots else 0
        values: list[float | None] = []
        for place in range(letters):
            until = end - MINUTE_MS * (letters - 1 - place) / letters
            known = [s for s in self.snapshots if s.updated_ms <= until]
            values.append(known[-1].figures.get(name, 0) if known else None)
        top = max((v for v in values if v), default=0)
        return "".join(" " if v is None or not top else BLOCKS[max(1, round(v / top * 8))] for v in values)


def bar(snapshot: Snapshot, width: int) -> str:
    """What the charged bytes are made of, `width` letters wide. Every part that is not 0 has at least one letter."""
    total = sum(size for _, size in snapshot.parts())
    line, left = "", width
    for (_, size), colour in zip(snapshot.parts(), COLOURS, strict=True):
        if size > 0 and total > 0:
            letters = min(left, max(1, round(size / total * width)))
            line += styled("█" * letters, colour)
            left -= letters
    return line


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> Lines:
    """Rows of numbers. The first `left` columns hold words. No value breaks over lines."""
    above = [[styled(name, BOLD) for name in head]] if any(head) else []
    grid = [*above, *rows]
    widths = [max(width_of(row[column]) for row in grid) for column in range(len(head))]

    def cell(text: str, column: int) -> str:
        blanks = " " * (widths[column] - width_of(text))
        return text + blanks if column < left else blanks + text

    return [(" " * GAP).join(cell(text, column) for column, text in enumerate(row)) for row in grid]


def changed(rate: float | None) -> str:
    """A change of bytes per second."""
    return "" if not rate else f"{'+' if rate > 0 else '-'}{bytes_text(abs(rate))}"


def memory(snapshot: Snapshot, history: History | None = None, letters: int = 0) -> Lines:
    charged = max(snapshot.figure("charged_bytes"), 1)

    def row(label: str, figure: str) -> list[str]:
        size = snapshot.figure(figure)
        rate = history.rate(lambda s: s.figures.get(figure)) if history is not None else None
        course = [history.course(figure, letters)] if history is not None and letters else []
        return [label, bytes_text(size), f"{size / charged:.1%}", changed(rate), *course]

    rows = [
        row(styled(f"■ {part}", colour), figure)
        for (part, figure), colour in zip(stats.PARTS.items(), COLOURS, strict=True)
    ]
    rows.append(row(styled("charged", BOLD), "charged_bytes"))
    head = ["memory", "size", "share", "change/s", *([f"{'the last minute':<{letters}}"] if letters else [])]
    return table(head, rows, left=1)


def facts(snapshot: Snapshot) -> Lines:
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
    return table(("", ""), rows, left=1)


def _head(names: Sequence[str], by: str) -> list[str]:
    return [f"{name}▾" if name == by else name for name in names]


def classes(snapshot: Snapshot, shown: int, by: str = "bytes", history: History | None = None) -> Lines:
    order: dict[str, Callable[[SizeClass], int]] = {
        "block": lambda c: c.bytes,
        "live": lambda c: c.live,
        "bytes": lambda c: c.bytes * c.live,
        "cached": lambda c: c.cached,
    }

    rated = history is not None

    def grown(size: int) -> str:
        live = history and history.rate(lambda s: next((c.bytes * c.live for c in s.classes if c.bytes == size), 0))
        return changed(live or None)

    rows = [
        (f"{c.bytes:,}", f"{c.live:,}", bytes_text(c.bytes * c.live), f"{c.cached:,}", *([grown(c.bytes)] * rated))
        for c in sorted(snapshot.classes, key=order[by], reverse=True)[:shown]
    ]
    return table([*_head(tuple(order), by), *(["change/s"] * rated)], rows)


def threads(snapshot: Snapshot, shown: int, by: str = "cached", history: History | None = None) -> Lines:
    order: dict[str, Callable[[Thread], int]] = {
        "thread": lambda t: t.id,
        "cached": lambda t: t.cached_bytes,
        "of": lambda t: t.capacity_bytes,
        "slow paths": lambda t: t.slow_paths,
    }

    rated = history is not None

    def pace(number: int) -> str:
        rate = history and history.rate(lambda s: next((t.slow_paths for t in s.threads if t.id == number), None))
        return f"{rate:,.0f}" if rate else ""

    rows = [
        (
            str(t.id),
            bytes_text(t.cached_bytes),
            bytes_text(t.capacity_bytes),
            f"{t.slow_paths:,}",
            *([pace(t.id)] * rated),
        )
        for t in sorted(snapshot.threads, key=order[by], reverse=True)[:shown]
    ]
    return table([*_head(tuple(order), by), *(["/s"] * rated)], rows)


def title(snapshot: Snapshot, width: int) -> str:
    version = f"  freestone {snapshot.version} ({snapshot.build})" if snapshot.version else ""
    return f"{styled(snapshot.program[: max(15, width - 45)], BOLD)} process {snapshot.pid}{styled(version, DIM)}"


def beside(screen: Screen, *tables: Lines) -> Lines:
    """The tables in a row, or below each other if the terminal is too narrow."""
    widths = [max(map(width_of, lines)) for lines in tables]
    gap = min(4, (screen.width - sum(widths)) // max(1, len(tables) - 1))
    if gap < 2:
        return [line for lines in tables for line in (*lines, "")][:-1]
    rows = range(max(map(len, tables)))
    cells = [[lines[row] if row < len(lines) else "" for lines in tables] for row in rows]
    return [
        (" " * gap).join(text + " " * (width - width_of(text)) for text, width in zip(row, widths, strict=True))
        for row in cells
    ]


def picture(snapshot: Snapshot, screen: Screen, history: History | None = None, view: keys.View | None = None) -> Lines:
    """One process on one screen."""
    view = view or keys.View()
    rows = min(ROWS_SHOWN, max(ROWS_LEAST, screen.height - ROWS_ABOVE)) if screen.terminal else ROWS_SHOWN
    rates = history if screen.width >= RATES_FROM else None
    below = [classes(snapshot, rows, view.classes_by, rates)] if "classes" in view.tables else []
    if "threads" in view.tables and snapshot.threads:
        below.append(threads(snapshot, rows, view.threads_by, rates))
    known = history is not None and len(history.snapshots) > 1
    letters = min(LETTERS, screen.width - WIDE_FROM) if known else 0
    above = beside(screen, memory(snapshot, history, letters if letters >= 10 else 0), facts(snapshot))
    lines = [title(snapshot, screen.width), bar(snapshot, min(screen.width, 100)), ""]
    lines += [*above, "", *beside(screen, *below)]
    if history is not None and known:
        most = bytes_text(max(s.figure("charged_bytes") for s in history.snapshots))
        course = history.course("charged_bytes", min(60, screen.width - len(f"charged   0 to {most}")))
        lines += ["", f"{styled('charged', BOLD)} {course}{styled(f'  0 to {most}', DIM)}"]
    return lines


def listing(snapshots: Sequence[Snapshot]) -> Lines:
    rows = []
    for s in sorted(snapshots, key=lambda s: s.figure("charged_bytes"), reverse=True):
        sizes = (bytes_text(s.figure(name)) for name in ("live_bytes", "charged_bytes", "resident_bytes"))
        rows.append((str(s.pid), names.program(s.program), *sizes, str(s.figure("threads"))))
    return table(("process", "program", "live", "charged", "resident", "threads"), rows, left=2)


def watch(
    screen: Screen,
    pid: int,
    read: Callable[[], Snapshot],
    seconds: float,
    count: int | None,
    sleep: Callable[[float], None] = time.sleep,
    pressed: keys.Keys | None = None,
) -> None:
    """Shows what `read` says of a process until it ends, Ctrl-C, the key q, or `count` pictures. Without a terminal
    they follow each other.

    `pressed` waits for a key, if there is a keyboard. A frozen picture stands still while its history goes on.
    """
    history, view, shown = History(), keys.View(), 0
    history.add(read())
    held = replace(history)
    with screen.in_place(count is None) as show:
        while True:
            held = held if view.frozen else replace(history)
            now = held.snapshots[-1]
            age = stats.age_seconds(now)
            note = f"unchanged for {age:.0f} s: the program takes no slow path" if age > 3 else ""
            note = "frozen: f goes on" if view.frozen else note
            hint = keys.HELP[: screen.width] if pressed else ""
            show([*picture(now, screen, held, view), *([styled(hint, DIM)] if hint else []), styled(note, DIM)])
            shown += 1
            if count is not None and shown >= count:
                return
            if (after := _after_wait(view, seconds, sleep, pressed)) is None:
                return
            view = after
            try:
                history.add(read())
            except UserError:
                if stats.is_running(pid):
                    raise
                break
    screen.show([f"process {pid} has ended"])


def _after_wait(
    view: keys.View, seconds: float, sleep: Callable[[float], None], pressed: keys.Keys | None
) -> keys.View | None:
    """The view after the time between two pictures, or at once after a key; None for the end."""
    if pressed is None:
        sleep(seconds)
        return view
    key = pressed(seconds)
    return view.after(key) if key else view
