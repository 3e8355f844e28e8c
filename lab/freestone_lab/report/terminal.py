"""The terminal's view: tables, the verdict, progress. Without a terminal: plain text, no colour, no bar."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table as Grid

from freestone_lab.analysis.changes import Comparison, Objections
from freestone_lab.analysis.claims import Row, Table, headline, percent, verdict_word
from freestone_lab.core import units
from freestone_lab.core.result import Result
from freestone_lab.engine.fitness import Finding
from freestone_lab.engine.plan import Progress, Report
from freestone_lab.report.export import cells_of, noise, verdict_of
from freestone_lab.report.quantity import show
from freestone_lab.workloads.suites import WorkloadRun

PLAIN_WIDTH = 220
WIDE = 66  # columns that each figure of a table takes
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


def show_grid(out: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table whose cells are never broken: a file gets lines of any length, a narrow terminal a block for each row."""
    grid = Grid(
        title=title or None, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False
    )
    for heading in headings:
        grid.add_column(heading, no_wrap=True)
    for row in rows:
        grid.add_row(*map(escape, row))
    wanted = out.measure(grid, options=out.options.update(max_width=1000)).maximum
    if not out.is_terminal:
        out.width = max(out.width, wanted)
    if wanted <= out.width:
        out.print(grid)
        return
    if title:
        out.print(f"[bold]{escape(title)}[/]")
    for first, *rest in rows:
        out.print(f"[bold]{escape(first)}[/]")
        for heading, cell in zip(headings[1:], rest, strict=True):
            if cell:
                out.print(f"  {escape(heading)}: {escape(cell)}", soft_wrap=True)


def show_table(out: Console, table: Table) -> None:
    """One experiment: medians with spread, change to the baseline with its interval, verdict; then every caveat."""
    specs = table.experiment.specs
    names = [f for f in headline(table.experiment) if f in specs]
    # On a narrow terminal each figure has a table of its own, so that no column is cut.
    groups = [names] if out.width >= WIDE * len(names) else [[name] for name in names]
    for group in groups:
        out.print(_grid(table, group))
    if any(row.counts for row in table.rows):
        out.print(_count_grid(table))
    for row in table.rows:
        if row.status != "ok":
            out.print(f"  [red]{escape(row.peer)}: {row.status}[/]: {escape(row.detail)}")
    if line := noise(table, names):
        out.print(f"  {line}", style="dim")
    for text in table.experiment.caveats:
        out.print(f"  note: {escape(text)}", style="dim")


def _count_grid(table: Table) -> Grid:
    """Counted once each, in passes of their own: no spread, no interval, and little noise."""
    specs = table.experiment.specs
    names = sorted({name for row in table.rows for name in row.counts})
    grid = Grid(title=f"{escape(table.experiment.id)}, counted once", title_justify="left", title_style="bold")
    grid.add_column("allocator", no_wrap=True)
    for name in names:
        grid.add_column(specs[name].label or name, justify="right")
        grid.add_column(f"to {table.baseline}", justify="right", no_wrap=True)
    base = table.row(table.baseline)
    for row in table.rows:
        if row.counts:
            cells = [escape(row.peer)]
            for name in names:
                value, other = row.counts.get(name), base.counts.get(name) if base else None
                cells.append(show(value, specs[name].unit) if value is not None else "")
                cells.append(percent(value / other) if value is not None and other and row is not base else "")
            grid.add_row(*cells)
    return grid


def _grid(table: Table, names: Sequence[str]) -> Grid:
    specs = table.experiment.specs
    title = table.experiment.id if len(names) != 1 else f"{table.experiment.id}: {specs[names[0]].label or names[0]}"
    grid = Grid(title=escape(title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    grid.add_column("allocator", overflow="fold")
    for name in names:
        grid.add_column(specs[name].label or name, justify="right", no_wrap=True)
        grid.add_column("change (95 %)", justify="right", no_wrap=True)
        grid.add_column("verdict", no_wrap=True)
    grid.add_column("runs", justify="right", no_wrap=True)
    for row in table.rows:
        if row.status != "ok":
            grid.add_row(escape(row.peer), f"[red]{row.status}[/]")
            continue
        cells = [escape(row.peer)]
        for name in names:
            cells += _cells(table, row, name)
        grid.add_row(*cells, str(row.runs))
    return grid


def _cells(table: Table, row: Row, name: str) -> list[str]:
    value, ratio, word = cells_of(table, row, name)
    cell = row.cells.get(name)
    if cell is None or cell.estimate is None:
        return [value, ratio, word]
    return [value, ratio, f"[{'dim' if row.peer in table.controls else _COLOURS[cell.verdict]}]{word}[/]"]


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
