"""How near the replay of a trace comes to its program.

Both run under glibc, one after the other in each round. The program's calls are timed by timed.c, a preloaded
library that reads the counter around each call as the replayer does.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.measure import counts, fingerprint, share
from freestone_lab.trace import corpus, replaying

SCHEMA = "freestone-fidelity/1"
COMMAND = "freestone trace fidelity"
RESULT = Path("docs/results/fidelity.json")
PROGRAMS = (
    *("python-json", "python-objects", "python-documents", "redis", "nginx", "sqlite3", "lua", "jq", "perl", "git"),
    *("vim", "bash", "openssl", "grep"),
    *("ruby", "node", "cc1plus", "clang"),  # much of their memory they map themselves, or use in part
)
COUNTS = Path("docs/results/fidelity-counts.json")
COUNTS_SCHEMA = "freestone-fidelity-counts/1"
COUNTS_COMMAND = "freestone trace fidelity --counts"
CALLS = ("malloc", "calloc", "realloc", "free", "memalign", "posix_memalign", "aligned_alloc")
FIGURES = {"rss": "peak_kib", "rss_mean": "mean_kib"}

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """A program; each list has a value for each round. `program` and `replay`: what ran to its figures."""

    name: str
    calls: dict[str, int]
    mapped_kib: int  # that the program mapped itself, outside malloc
    program: dict[str, list[float]]
    replay: dict[str, list[float]]


@dataclass(frozen=True)
class Counted:
    """Instructions inside the calls of malloc and the like."""

    name: str
    program: int
    replay: int


def ratio(row: dict[str, Any], what: str, to: str, figure: str) -> tuple[float, float, float]:
    """The median over rounds of one ratio, and its extremes."""
    found = [a / b for a, b in zip(row[what][figure], row[to][figure], strict=True)]
    return median(found), min(found), max(found)


def measure(names: Sequence[str], rounds: int, say: Callable[[str], None]) -> tuple[list[Row], list[str]]:
    """A row for each program, and why each of the others has none. UserError for a program that is not here."""
    return each(names, say, lambda row, folder: _measure(row, folder, rounds))


def count(names: Sequence[str], say: Callable[[str], None]) -> tuple[list[Counted], list[str]]:
    """As `measure`, in instructions."""
    return each(names, say, _count)


def each(
    names: Sequence[str], say: Callable[[str], None], look: Callable[[corpus.Row, Path], T]
) -> tuple[list[T], list[str]]:
    """What `look` makes of each program, and why some failed. UserError for a program that is not here."""
    made, failed = [], []
    with outputs.Scratch("fidelity") as scratch:
        folder = Path(scratch)
        found = {row.name: row for row in corpus.rows(folder, names, say)}
        if missing := [name for name in names if name not in found]:
            raise UserError(f"not installed: {', '.join(missing)}")
        for name in names:
            say(name)
            try:
                made.append(look(found[name], folder))
            except (UserError, subprocess.TimeoutExpired) as error:
                failed.append(f"{name}: {str(error).removeprefix(f'{name}: ')}")
                say(failed[-1])
    return made, failed


def _count(row: corpus.Row, folder: Path) -> Counted:
    """Under callgrind; the process with the most, as the replay is of the one with the most calls."""
    trace = folder / "whole.fst"
    corpus.record_whole(row, trace)
    way = replaying.Way(idle_ms=0)
    plan = replaying.make_plan(trace, way)
    env = dict(os.environ)
    ours = counts.by_process(row.argv, {**env, **row.env}, row.cwd, row.stdin, folder, CALLS)
    replay = counts.by_process(replaying.command(plan, way), env, Path("/"), None, folder, CALLS)
    plan.unlink(missing_ok=True)
    if not ours or not replay:
        raise UserError(f"{row.name}: nothing was counted; expected valgrind, and a program that runs under it")
    return Counted(row.name, max(ours), max(replay))


def _measure(row: corpus.Row, folder: Path, rounds: int) -> Row:
    trace = folder / "whole.fst"
    corpus.record_whole(row, trace)
    way = replaying.Way(idle_ms=0)
    plan = replaying.make_plan(trace, way)
    program: dict[str, list[float]] = {}
    replay: dict[str, list[float]] = {}
    calls: dict[str, int] = {}
    mapped = 0
    for _ in range(rounds):
        ran = _timed(row, folder / "timed")
        _add(program, {name: float(ran[name]) for name in ("seconds", "peak_kib")})
        calls["program"], mapped = int(ran["calls"]), int(ran["mapped_kib"])
        said = replaying.replay(replaying.command(plan, way))
        memory = {ours: float(said["figures"][theirs]["value"]) for theirs, ours in FIGURES.items()}
        _add(replay, {"seconds": float(said["undisturbed_s"]), **memory})
        calls["replay"] = int(said["calls"])
    plan.unlink(missing_ok=True)
    return Row(row.name, calls, mapped, program, replay)


def _add(to: dict[str, list[float]], found: dict[str, float]) -> None:
    for name, value in found.items():
        to.setdefault(name, []).append(value)


def _timed(row: corpus.Row, said: Path) -> dict[str, Any]:
    """What the process with the most calls says of itself."""
    said.unlink(missing_ok=True)
    env = {**os.environ, **row.env, "LD_PRELOAD": str(share.library()), share.VARIABLE: str(said)}
    with (row.stdin or Path(os.devnull)).open("rb") as stdin:
        done = subprocess.run(
            row.argv, cwd=row.cwd, env=env, stdin=stdin, capture_output=True, timeout=corpus.SECONDS, check=False
        )
    if done.returncode != 0 or not said.exists():
        raise UserError(f"{row.name}: status {done.returncode}, and nothing was timed")
    return max(share.lines(said), key=lambda line: int(line["calls"]))


def to_store(schema: str, rows: Sequence[Any], failed: Sequence[str] = ()) -> dict[str, Any]:
    """Dataclasses as a result, with when and where they were measured, and what could not be."""
    return {
        "schema": schema,
        **fingerprint.in_short(),
        "programs": [asdict(row) for row in rows],
        "failed": list(failed),
    }


def as_json(rows: Sequence[Row], failed: Sequence[str], rounds: int) -> dict[str, Any]:
    return {**to_store(SCHEMA, rows, failed), "rounds": rounds}


def counts_as_json(rows: Sequence[Counted], failed: Sequence[str]) -> dict[str, Any]:
    return to_store(COUNTS_SCHEMA, rows, failed)


HEADINGS: tuple[str, ...] = (
    *("program", "calls", "its time in malloc", "the replay's", "its peak", "maps", "the replay's peak"),
)


def cells(row: dict[str, Any]) -> list[str]:
    """A program's line of the table: the program's figures, and its replay's change to them.

    A change is the median over the rounds, with the extremes of what varies from run to run."""
    program = row["program"]
    return [
        row["name"],
        f"{row['calls']['program']:,}",
        f"{median(program['seconds']) * 1000:.1f} ms",
        _spread(row, "replay", "program", "seconds"),
        f"{median(program['peak_kib']) / 1024:.1f} MiB",
        f"{row['mapped_kib'] / 1024:.0f} MiB" if row["mapped_kib"] > 1024 else "-",
        _change(row, "replay", "program", "peak_kib"),
    ]


COUNTS_HEADINGS: tuple[str, ...] = ("program", "instructions in its calls", "the replay's")


def count_cells(row: dict[str, Any]) -> list[str]:
    return [row["name"], f"{row['program']:,}", f"{row['replay'] / row['program'] - 1:+.1%}"]


def _change(row: dict[str, Any], what: str, to: str, figure: str) -> str:
    return f"{ratio(row, what, to, figure)[0] - 1:+.1%}"


def _spread(row: dict[str, Any], what: str, to: str, figure: str) -> str:
    middle, low, high = (value - 1 for value in ratio(row, what, to, figure))
    return f"{middle:+.1%} ({low:+.0%} to {high:+.0%})"
