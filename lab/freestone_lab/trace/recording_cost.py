"""What recording costs as a whole: CPU time of a program alone, and of it with recorder and writer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from freestone_lab.core.errors import UserError
from freestone_lab.engine.plan import base_environment
from freestone_lab.measure import process as measure
from freestone_lab.measure.process import Request
from freestone_lab.trace import corpus, fidelity, recording

SCHEMA = "freestone-recording-cost/1"
COMMAND = "freestone trace fidelity --recording"
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
    return fidelity.each(names, say, lambda row, folder: _measure(row, folder, rounds))


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
    return {**fidelity.to_store(SCHEMA, rows, failed), "rounds": rounds, "cpus": os.cpu_count()}


HEADINGS: tuple[str, ...] = ("program", "CPU s, alone", "recorded, with the writer", "times", "spread")


def cells(row: Row) -> list[str]:
    found = ratios(row)
    shown = [f"{median(row.alone):.2f}", f"{median(row.recorded):.2f}", f"{median(found):.2f}"]
    return [row.name, *shown, f"{min(found):.2f} to {max(found):.2f}"]
