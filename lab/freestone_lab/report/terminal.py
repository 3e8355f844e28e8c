"""The terminal's view: tables, the verdict, progress. Without a terminal: plain text, no colour, no bar."""

import os
import sys
import textwrap
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table as Grid
from rich.text import Text

from freestone_lab.analysis.changes import Comparison, Objections
from freestone_lab.analysis.claims import Row, Table, headline, percent, verdict_word
from freestone_lab.core import units
from freestone_lab.core.result import Result
from freestone_lab.engine.fitness import Finding
from freestone_lab.engine.plan import Progress, Report
from freestone_lab.report.card import Card
from freestone_lab.report.export import cells_of, noise, verdict_of
from freestone_lab.report.quantity import show
from freestone_lab.workloads.suites import WorkloadRun

PLAIN_WIDTH = 220
GAP = 2  # columns between two cells
_COLOURS = {"better": "green", "worse": "red", "same": "cyan", "inconclusive": "yellow"}


def console(stderr: bool = False) -> Console:
    """A console that honours NO_COLOR and, without a terminal, neither wraps at 80 columns nor colours."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return _Console(stderr=stderr, width=width, highlight=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The command ends as it does wherever a reader of its output has ended (cli.py)."""
        raise BrokenPipeError


def show_grid(
    out: Console, headings: Sequence[str], rows: Sequence[Sequence[str | Text]], title: str = "", group: int = 0,
    right: Collection[int] = (),
) -> None:  # fmt: skip
    """A table whose cells are never broken: a file gets lines of any length.

    Where a terminal is too narrow, the columns after the first go into further blocks, `group` of them together if
    that fits; where one column does not fit, and without a group, each row is a block.
    """
    if title:
        out.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    sizes = [max((row[i].cell_len for row in cells), default=0) for i in range(len(headings))]
    whole = [max(pair) for pair in zip(sizes, map(len, headings), strict=True)]
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = max(out.width, sum(whole) + GAP * len(whole))
    blocks = _fold(whole, out.width, len(whole))
    for named in (False, True) if group else ():
        if blocks:
            break
        if named:  # a column may stand without the first one of its group: it is named after that
            firsts = [headings[i - (i - 1) % group] if i else headings[0] for i in range(len(headings))]
            headings = [h if h == first else f"{first}: {h}" for h, first in zip(headings, firsts, strict=True)]
        whole = [max(size, *map(len, h.split())) for size, h in zip(sizes, headings, strict=True)]
        blocks = _fold(whole, out.width, 1 if named else group)
    for block in blocks:
        grid = Grid(box=None, header_style="bold", pad_edge=False)
        for i in block:
            heading = "\n".join(textwrap.wrap(headings[i], whole[i]))
            grid.add_column(escape(heading), no_wrap=True, justify="right" if i in right else "left")
        for row in cells:
            grid.add_row(*(row[i] for i in block))
        out.print(grid)
    for first, *rest in cells if not blocks else ():
        out.print(Text(first.plain, "bold"), soft_wrap=True)
        for heading, cell in zip(headings[1:], rest, strict=True):
            if cell:
                out.print(Text(f"  {heading}: ").append_text(cell), soft_wrap=True)


def _fold(sizes: Sequence[int], width: int, group: int) -> list[list[int]]:
    """The columns of each block, the first column in all of them; none if some group does not fit."""
    blocks: list[list[int]] = []
    for start in range(1, len(sizes), group):
        more = range(start, min(start + group, len(sizes)))
        last = [*(blocks.pop() if blocks else [0]), *more]
        blocks += [last] if _wide(sizes, last) <= width else [last[: -len(more)], [0, *more]]
    blocks = [block for block in blocks if block != [0]]
    return blocks if all(_wide(sizes, block) <= width for block in blocks) else []


def _wide(sizes: Sequence[int], block: Sequence[int]) -> int:
    return sum(sizes[i] + GAP for i in block) - GAP


def show_table(out: Console, table: Table) -> None:
    """One experiment: medians with spread, change to the baseline with its interval, verdict; then every caveat."""
    specs, title = table.experiment.specs, table.experiment.id
    names = [f for f in headline(table.experiment) if f in specs]
    headings = ["allocator", *(h for n in names for h in (specs[n].label or n, "change (95 %)", "verdict")), "runs"]
    rows = [[row.peer, *(c for n in names for c in _cells(table, row, n)), _runs(row)] for row in table.rows]
    show_grid(out, headings, rows, title, 3, [i for i in range(1, len(headings)) if i % 3])
    if any(row.counts for row in table.rows):
        _show_counts(out, table)
    for row in table.rows:
        if row.status != "ok":
            out.print(f"  [red]{escape(row.peer)}: {row.status}[/]: {escape(row.detail)}")
    if line := noise(table, names):
        out.print(f"  {line}", style="dim")
    for text in table.experiment.caveats:
        out.print(f"  note: {escape(text)}", style="dim")


def _show_counts(out: Console, table: Table) -> None:
    """Counted once each, in passes of their own: no spread, no interval, and little noise."""
    specs, base = table.experiment.specs, table.row(table.baseline)
    names = sorted({name for row in table.rows for name in row.counts})
    headings = ["allocator", *(h for n in names for h in (specs[n].label or n, f"to {table.baseline}"))]
    rows = []
    for row in table.rows:
        if row.counts:
            cells = [row.peer]
            for name in names:
                value, other = row.counts.get(name), base.counts.get(name) if base else None
                cells.append(show(value, specs[name].unit) if value is not None else "")
                cells.append(percent(value / other) if value is not None and other and row is not base else "")
            rows.append(cells)
    show_grid(out, headings, rows, f"{table.experiment.id}, counted once", 2, range(1, len(headings)))


def _runs(row: Row) -> str:
    return str(row.runs) if row.status == "ok" else ""


def _cells(table: Table, row: Row, name: str) -> list[str | Text]:
    if row.status != "ok":
        return [Text(row.status, "red"), "", ""]
    value, ratio, word = cells_of(table, row, name)
    cell = row.cells.get(name)
    if cell is None or cell.estimate is None:
        return [value, ratio, word]
    return [value, ratio, Text(word, "dim" if row.peer in table.controls else _COLOURS[cell.verdict])]


def show_served(out: Console, result: Result) -> None:
    """Which library stood behind each row: proven by the dynamic linker's account before any figure was taken."""
    failed = {s.peer for e in result.experiments for s in e.samples if s.status == "not_loaded"}
    out.print("who served malloc (the dynamic linker's account, before any figure):", style="dim")
    for peer in result.peers:
        if peer.kind == "control" and peer.path is None:
            continue
        where = peer.path or "the program's own libc"
        about = " ".join(x for x in (peer.version, f"({peer.origin})" if peer.origin else "") if x)
        proven = "not proven: see above" if peer.name in failed else "proven"
        out.print(f"  {escape(peer.name)}: {escape(where)} {escape(about)}, {proven}", style="dim")


def show_verdict(out: Console, table: Table) -> None:
    """The answer in one sentence."""
    out.print(f"[bold]Verdict[/] ({escape(table.experiment.id)}): {escape(verdict_of(table))}.")


def show_card(out: Console, card: Card) -> None:
    """The headline, the table, and the rest below it."""
    out.print(Text(card.sentence, "bold"), soft_wrap=True)
    if card.rows:
        show_grid(out, card.headings, card.rows, group=1)
    for word, said in card.lines:
        out.print(f"{word:<9} {said}", markup=False, soft_wrap=True)


def show_written(out: Console, paths: Sequence[Path]) -> None:
    for path in paths:
        out.print(f"written: {escape(str(path))}", style="dim")


@contextmanager
def progress(out: Console, tasks: int) -> Iterator[Report]:
    """A bar with the remaining time on a terminal; otherwise a line per stage and every ten seconds."""
    seen: dict[str, None] = {}
    last = 0.0

    def text(p: Progress) -> str:
        seen.setdefault(p.task)
        stage = "warm-up" if p.round == 0 else f"round {p.round}" if p.round > 0 else "counting"
        part = f"[{len(seen)}/{tasks}] " if tasks > 1 else ""
        left = f", {units.words(p.remaining_s)} left" if p.remaining_s is not None else ""
        return f"{part}{p.task}: {stage}, {p.peer}{left}"

    if not out.is_terminal:
        said: set[tuple[str, int]] = set()

        def plain(p: Progress) -> None:
            nonlocal last
            stage = (p.task, min(p.round, 2))  # the second round's line says that the first is complete
            if time.monotonic() - last >= 10 or stage not in said:
                last = time.monotonic()
                said.add(stage)
                out.print(escape(text(p)))

        yield plain
        return

    with Bar(BarColumn(24), TextColumn("{task.description}"), console=out, transient=True) as bar:
        line = bar.add_task("", total=1.0)

        def update(p: Progress) -> None:
            bar.update(line, description=escape(text(p)), completed=p.done, total=max(p.expected, 1))

        yield update


def show_changes(out: Console, found: Comparison, objections: Objections) -> None:
    """Two results side by side, and what the gates object to."""
    rows = []
    for c in found.changes:
        cells = [c.experiment, c.peer, c.spec.label or c.figure]
        if c.ratio is None:
            rows.append([*cells, "", "", "too few values"])
            continue
        interval = f"{percent(c.ratio.low)} … {percent(c.ratio.high)}" if c.ratio.is_known else "too few values"
        rows.append([*cells, percent(c.ratio.ratio), interval, verdict_word(c.verdict, c.spec)])
    show_grid(out, ("experiment", "allocator", "figure", "change", "95 % interval", "verdict"), rows, "from A to B")
    what = f"each allocator's ratio to {found.to}; what the program itself changed shows only in {found.to}'s rows"
    out.print(f"  compared: {f'{what}, or with --absolute' if found.to else 'plain values'}", style="dim")
    for line in found.broken:
        out.print(f"  [red]broken[/]: {escape(line)}")
    for line in found.apart:
        out.print(f"  [yellow]not the same[/]: {escape(line)}")
    if found.only_a:
        out.print(f"  only in A: {escape(', '.join(found.only_a))}", style="dim")
    if found.only_b:
        out.print(f"  only in B: {escape(', '.join(found.only_b))}", style="dim")
    for line in objections.worse:
        out.print(f"[red]fails[/] {escape(line)}")
    for line in objections.unjudged:
        out.print(f"[red]cannot judge[/] {escape(line)}")


def show_findings(out: Console, findings: Sequence[Finding]) -> None:
    """What the doctor found, and the sum of it."""
    colours = {"ok": "green", "warn": "yellow", "bad": "red"}
    for f in findings:
        out.print(f"[{colours[f.state]}]{f.state:<4}[/] {escape(f.name)}: {escape(f.text)}")
    bad = [f.name for f in findings if f.state == "bad"]
    warned = [f.name for f in findings if f.state == "warn"]
    if bad:
        out.print(f"[bold red]not fit to measure times now[/]: {', '.join(bad)}")
    elif warned:
        out.print(f"[bold yellow]fit, with reserve[/]: {', '.join(warned)}")
    else:
        out.print("[bold green]fit to measure[/]")


def show_suites(
    out: Console,
    suites: Mapping[str, Sequence[WorkloadRun]],
    about: Mapping[str, Mapping[str, Any]],
    apps: Mapping[str, bool],
) -> None:
    """What `bench` can run."""
    for name, rows in suites.items():
        if rows:
            out.print(f"[bold]suite {escape(name)}[/]: {len(rows)} experiments")
        else:
            here = sum(apps.values())
            more = "; `freestone setup --apps` installs more" if here < len(apps) else ""
            out.print(f"[bold]suite {escape(name)}[/]: {here} of {len(apps)} real programs are installed{more}")
        for row in rows if name != "full" else ():
            out.print(f"    {escape(row.id)}: {escape(row.shows)}", style="dim")
    for name, workload in about.items():
        out.print(f"[bold]workload {escape(name)}[/]: {escape(str(workload['summary']))}")
        parameters = ", ".join(f"{p['name']}={p['default']}" for p in workload["params"])
        out.print(f"    {escape(parameters)}", style="dim")
    shown = [name if here else f"{name} (absent)" for name, here in apps.items()]
    out.print(f"[bold]applications[/]: {escape(', '.join(shown))}")
