"""What recording costs as a whole: CPU time of a program alone, and of it with recorder and writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.engine.plan import base_environment
from freestone_lab.measure import fingerprint
from freestone_lab.measure import process as measure
from freestone_lab.measure.process import Request
from freestone_lab.trace import corpus, recording

SCHEMA = "freestone-recording-cost/1"
COMMAND = "freestone trace cost"
RESULT = Path("docs/results/recording-whole.json")
PROGRAMS = ("python-json", "sqlite3", "lua", "jq", "perl", "git", "cc1plus")
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Row:
    """User and system seconds of all processes, one for each round."""

    name: str
    alone: list[float]
    recorded: list[float]


def measure_all(names: Sequence[str], rounds: int, say: Callable[[str], None]) -> tuple[list[Row], list[str]]:
    """A row for each program, and why each of the others has none. UserError for a program that is not here."""
    made, failed = [], []
    with outputs.Scratch("recording") as scratch:
        folder = Path(scratch)
        found = {row.name: row for row in corpus.rows(folder, names, say)}
        if missing := [name for name in names if name not in found]:
            raise UserError(f"not installed: {', '.join(missing)}")
        for name in names:
            say(name)
            try:
                made.append(_measure(found[name], folder, rounds))
            except UserError as error:
                failed.append(f"{name}: {str(error).removeprefix(f'{name}: ')}")
                say(failed[-1])
    return made, failed


def _measure(row: corpus.Row, folder: Path, rounds: int) -> Row:
    """Both ways one after the other in each round, in turns which comes first."""
    words, env = recording.command_line(recording.Request(folder / "whole.fst", row.argv))
    found = Row(row.name, [], [])
    for number in range(rounds + 1):
        ways = [(row.argv, base_environment(row.env), found.alone), (words, {**env, **row.env}, found.recorded)]
        for argv, environment, to in ways if number % 2 else reversed(ways):
            ran = measure.run(
                Request(argv, environment, row.cwd, row.stdin, TIMEOUT_S), folder / "stdout", folder / "stderr"
            )
            if ran.failure or ran.exit_status != 0:
                raise UserError(f"{ran.failure or f'status {ran.exit_status}'}: {measure.tail(folder / 'stderr')}")
            if number > 0:  # the first round warms the file cache
                to.append(ran.user_s + ran.sys_s)
    return found


def ratios(row: Row) -> list[float]:
    return [a / b for a, b in zip(row.recorded, row.alone, strict=True)]


def as_json(rows: Sequence[Row], failed: Sequence[str], rounds: int) -> dict[str, Any]:
    """As a result, with when and where it was measured, and what could not be."""
    return {
        "schema": SCHEMA,
        **fingerprint.in_short(),
        "programs": [asdict(row) for row in rows],
        "failed": list(failed),
        "rounds": rounds,
        "cpus": os.cpu_count(),
    }


HEADINGS: tuple[str, ...] = ("program", "CPU s, alone", "recorded, with the writer", "times", "spread")


def cells(row: Row) -> list[str]:
    found = ratios(row)
    shown = [f"{median(row.alone):.2f}", f"{median(row.recorded):.2f}", f"{median(found):.2f}"]
    return [row.name, *shown, f"{min(found):.2f} to {max(found):.2f}"]
