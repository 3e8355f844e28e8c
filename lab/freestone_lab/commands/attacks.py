"""`freestone bench attacks` (also `freestone attacks`): arguments in, tables and files out."""

from __future__ import annotations

import re
import time
from argparse import Namespace
from typing import Literal

from rich.markup import escape
from rich.table import Table

from freestone_lab.attacks import campaign, enumerated, tables
from freestone_lab.core import outputs, result_file, units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.peers import discover as peers
from freestone_lab.report.terminal import console, show_written


def run(options: Namespace) -> int:
    if options.enumerated:
        return _enumerated(options)
    program = campaign.build_program()
    cases = campaign.select_cases(campaign.load_cases(program), options.case)
    if options.list_cases:
        _list(cases)
        return 0
    sizes = _checked_sizes(options.size)
    gates = _gates(options.gate)
    chosen = campaign.discover(options.names, program)
    known = {peer.name for peer in chosen}
    for wanted in (*options.details, *gates):
        if wanted not in known:
            raise UserError(f"{wanted!r} is not attacked here; expected one of {', '.join(sorted(known))}")
    result = campaign.run(
        chosen,
        cases,
        campaign.QUICK_SEEDS if options.quick else options.seeds or campaign.SEEDS,
        sizes,
        options.jobs,
        first_seed=options.first_seed,
        progress=_Reporter(len(chosen)),
    )
    _show(result, options.details)
    written = [options.output or outputs.new_name("attacks", ".json.gz")]
    result_file.save(result, written[0])
    if options.markdown is not None:
        outputs.write_whole(options.markdown, tables.markdown(result, options.details))
        written.append(options.markdown)
    show_written(console(stderr=True), written)
    return 0 if _passes(result, gates) else 1


def _enumerated(options: Namespace) -> int:
    out = console(stderr=True)
    chosen = peers.discover(only=options.names)
    result = enumerated.run(
        chosen,
        options.rounds,
        options.first_seed,
        kind=options.kind,
        progress=lambda peer: out.print(escape(f"{peer}: {options.rounds} attacks of each kind")),
    )
    if not result.experiments and "not_judged" not in result.fingerprint:
        raise UserError(f"--kind '{options.kind}': expected a part of a kind's name, such as 'double free'")
    _show_grid(enumerated.grid(result))
    path = options.output or outputs.new_name("enumerated", ".json.gz")
    result_file.save(result, path)
    show_written(out, [path])
    return 0


class _Reporter:
    """Tells standard error, at most every five seconds, how far the run is and how long it will take."""

    def __init__(self, peers_in_all: int) -> None:
        self._out = console(stderr=True)
        self._peers = peers_in_all
        self._seen: list[str] = []
        self._began = self._last = time.monotonic()

    def __call__(self, peer: str, done: int, pairs: int) -> None:
        if peer not in self._seen:
            self._seen.append(peer)
        now = time.monotonic()
        if now - self._last < 5:
            return
        self._last = now
        share = (len(self._seen) - 1 + done / pairs) / self._peers
        left = (now - self._began) * (1 - share) / share
        text = f"[{len(self._seen)}/{self._peers}] {peer}: {done} of {pairs} cases and sizes"
        self._out.print(escape(f"{text}, about {units.words(left)} left"))


def _checked_sizes(given: list[str]) -> tuple[str, ...]:
    for one in given:
        if one not in campaign.SIZES:
            raise UserError(f"--size {one!r} is unknown; expected {', '.join(campaign.SIZES)}")
    return tuple(given) if given else campaign.SIZES


def _gates(text: str | None) -> dict[str, float]:
    gates: dict[str, float] = {}
    for part in (text or "").split(",") if text else ():
        match = re.fullmatch(r"\s*([^=]+?)\s*=\s*(\d+(?:\.\d+)?)\s*%?\s*", part)
        if match is None or float(match[2]) > 100:
            raise UserError(f"--gate '{part}': expected NAME=PERCENT, such as freestone=65")
        gates[match[1]] = float(match[2]) / 100
    return gates


def _passes(result: Result, gates: dict[str, float]) -> bool:
    out = console(stderr=True)
    passed = True
    for name, least in gates.items():
        share = tables.defended_share(result, name)
        false_alarms = tables.totals(result, name)["false_alarm"]
        shown = "nothing" if share is None else tables.percent(share)
        if share is None or share < least:
            out.print(f"{name}: {shown} defended, below the gate of {least * 100:g} %", style="red")
            passed = False
        if false_alarms:
            out.print(f"{name}: {false_alarms} false alarms", style="red")
            passed = False
    return passed


def _show(result: Result, details: list[str]) -> None:
    grids = [tables.summary(result), tables.by_family(result)]
    grids += [tables.escape_grid(result, peer, apart=apart) for peer in details for apart in (False, True)]
    for grid in grids:
        _show_grid(grid)
    for note in tables.apart_notes(result):
        console().print(escape(f"apart: {note}"), style="dim")


def _show_grid(grid: tables.Grid) -> None:
    out = console()
    table = Table(title=grid.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    numeric = grid.headings[-1] != "for example"
    for index, heading in enumerate(grid.headings):
        justify: Literal["left", "right"] = "right" if numeric and index else "left"
        table.add_column(heading.replace("-", "-\n"), justify=justify, overflow="fold", no_wrap=index == 0)
    for row in grid.rows:
        table.add_row(*(escape(cell) for cell in row))
    out.print(table)
    for note in grid.notes:
        out.print(escape(note))
    out.print()


def _list(cases: list[campaign.AttackCase]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("case", "family", "sizes", "what it does"):
        table.add_column(heading, overflow="fold")
    for case in cases:
        apart = f" (apart: {', '.join(case.apart_sizes)})" if case.apart_sizes else ""
        table.add_row(case.id, case.family, ", ".join(case.sizes) + apart, escape(case.about))
    console().print(table)
