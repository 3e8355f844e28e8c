"""Whether a replay tells allocators apart as its program does: CPU time and peak under each, program against replay.

A replay makes the program's calls and none of its work. So what it foretells of the program under another allocator is
the program under the baseline, and the difference that the two make in the replay.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from freestone_lab.analysis import inference, paired
from freestone_lab.analysis.sequential import ERROR_RATE
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.engine.plan import base_environment
from freestone_lab.measure import process as measure
from freestone_lab.measure.process import Placement, Request, Run
from freestone_lab.measure.samples import read_workload
from freestone_lab.peers.discover import LIBC_PEER, preload_environment
from freestone_lab.trace import corpus, fidelity, replaying

SCHEMA = "freestone-fidelity-ratios/1"
COMMAND = "freestone trace fidelity --ratios"
RESULT = Path("docs/results/fidelity-ratios.json")
PROGRAMS = (
    *("python-json", "python-objects", "python-documents", "sqlite3", "lua", "jq", "perl", "git", "openssl"),
    "cc1plus",
)
LEAST_PEERS = 5
FIGURES = {"cpu_s": "time", "peak_kib": "peak"}
TIMEOUT_S = 120.0

Values = dict[str, dict[str, list[float]]]  # by allocator and figure, one for each round


@dataclass(frozen=True)
class Row:
    """One program and the replay of its trace, under the same allocators in the same rounds."""

    name: str
    program: Values
    replay: Values


@dataclass(frozen=True)
class Kept:
    """What a replay keeps of its program in one figure. `told_apart` counts the pairs of allocators that the program
    itself tells apart; `agree` how many of these the replay puts in the same order. `errors` are those of the foretold
    ratios to the baseline, as logarithms."""

    told_apart: int
    agree: int
    errors: tuple[float, ...]

    @property
    def tau(self) -> float | None:
        return 2 * self.agree / self.told_apart - 1 if self.told_apart else None

    def __add__(self, other: Kept) -> Kept:
        return Kept(self.told_apart + other.told_apart, self.agree + other.agree, self.errors + other.errors)


def measure_all(
    names: Sequence[str], peers: Sequence[Peer], rounds: int, say: Callable[[str], None]
) -> tuple[list[Row], list[str]]:
    """A row for each program, and why each of the others has none. UserError for too few allocators."""
    if len(peers) < LEAST_PEERS or peers[0].name != LIBC_PEER:
        raise UserError(f"{len(peers)} allocators are here; ratios take {LEAST_PEERS}: freestone peers install")
    return fidelity.each(names, say, lambda row, folder: _measure(row, folder, peers, rounds))


def _measure(row: corpus.Row, folder: Path, peers: Sequence[Peer], rounds: int) -> Row:
    trace = folder / "whole.fst"
    corpus.record_whole(row, trace)
    way = replaying.Way(idle_ms=0)
    plan = replaying.make_plan(trace, way)
    own_kib = float(replaying.replay(replaying.command(plan, way, null=True))["begin_kib"])
    words = replaying.command(plan, way, own_kib=own_kib)
    found = Row(row.name, {}, {})
    order = list(peers)
    for number in range(rounds):
        random.Random(f"{row.name}/{number}").shuffle(order)
        for peer in order:
            ran, _ = _run(row.argv, row.env, row.cwd, row.stdin, peer, folder)
            _add(found.program, peer, cpu_s=ran.user_s + ran.sys_s, peak_kib=float(ran.rss_kib))
            _, said = _run(words, {}, Path("/"), None, peer, folder)
            figures = (read_workload(said)[0] or {}).get("figures")
            if not figures:
                raise UserError(f"{row.name}: its replay fails under {peer.name}")
            _add(found.replay, peer, cpu_s=figures["whole"]["value"], peak_kib=figures["rss"]["value"])
    plan.unlink(missing_ok=True)
    return found


def _run(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path, stdin: Path | None, peer: Peer, folder: Path
) -> tuple[Run, Path]:  # fmt: skip
    """One run on the last processor, and where its output lies. UserError if it fails."""
    allowed = sorted(os.sched_getaffinity(0))
    ran = measure.run(
        Request(
            argv, {**base_environment(env), **preload_environment(peer)}, cwd, stdin, TIMEOUT_S,
            Placement((allowed[-1],), tuple(allowed[:-1])),
        ),
        folder / "stdout", folder / "stderr",
    )  # fmt: skip
    if ran.failure or ran.exit_status != 0:
        why = ran.failure or f"status {ran.exit_status}"
        raise UserError(f"under {peer.name}: {why}: {measure.tail(folder / 'stderr')}")
    return ran, folder / "stdout"


def _add(to: Values, peer: Peer, **figures: float) -> None:
    for name, value in figures.items():
        to.setdefault(peer.name, {}).setdefault(name, []).append(value)


def foretold(row: Row, figure: str) -> dict[str, float]:
    """By allocator the program's value, as its value under the baseline and the replays' difference say it."""
    middle = {name: median(figures[figure]) for name, figures in row.replay.items()}
    base = median(row.program[LIBC_PEER][figure])
    return {name: base + value - middle[LIBC_PEER] for name, value in middle.items()}


def kept(row: Row, figure: str) -> Kept:
    told, real = foretold(row, figure), {name: values[figure] for name, values in row.program.items()}
    apart = agree = 0
    for one, other in combinations(real, 2):
        found = paired.ratio(real[one], real[other], ERROR_RATE)
        if (
            found is None
            or inference.side(found) == 0
            or abs(math.log(found.ratio)) < math.log1p(inference.LEAST_MARGIN)
        ):
            continue
        apart += 1
        agree += (told[one] < told[other]) == found.below
    base = median(real[LIBC_PEER])
    others = [name for name in real if name != LIBC_PEER]
    # A replay can foretell less than nothing of a program that is much shorter than its replay.
    errors = tuple(abs(math.log(max(told[n], base / 100) / median(real[n]))) for n in others)
    return Kept(apart, agree, errors)


def as_json(rows: Sequence[Row], failed: Sequence[str], peers: Sequence[Peer], rounds: int) -> dict[str, Any]:
    versions = {peer.name: peer.version for peer in peers}
    return {**fidelity.to_store(SCHEMA, rows, failed), "rounds": rounds, "peers": versions}


def rows_of(stored: Mapping[str, Any]) -> list[Row]:
    return [Row(row["name"], row["program"], row["replay"]) for row in stored["programs"]]


HEADINGS: tuple[str, ...] = (
    "program",
    "CPU",
    "told apart",
    "same order",
    "error",
    "peak",
    "told apart",
    "same order",
    "error",
)


def cells(row: Row) -> list[str]:
    """A program's line: its value under the baseline, pairs told apart, those in the same order, the errors."""
    shown = [row.name]
    for figure in FIGURES:
        value, found = median(row.program[LIBC_PEER][figure]), kept(row, figure)
        shown.append(f"{value * 1000:.0f} ms" if figure == "cpu_s" else f"{value / 1024:.1f} MiB")
        shown += [str(found.told_apart), str(found.agree) if found.told_apart else "-", error_words(found.errors)]
    return shown


def error_words(errors: Sequence[float]) -> str:
    """The middle and the largest error of ratios, in per cent."""
    return f"{math.expm1(median(errors)):.1%}, at most {math.expm1(max(errors)):.1%}".replace("%", " %")
