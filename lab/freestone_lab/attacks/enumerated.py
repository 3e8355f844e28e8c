"""The attack suite under allocators: each kind of misuse, by every means and at every offset, counted per kind.

`run` gives a Result with one experiment per kind. Each peer has one sample there: its figure `stopped` is the share
that was seen, trapped or without effect, and its `counts` hold the verdicts. The program is built from
allocator/tests/fault/enumerated and linked to no allocator. It forks a child for every attack and its twin.
"""

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.measure import fingerprint, native, proof
from freestone_lab.peers import discover

WORKLOAD = "enumerated"
ROUNDS = 100
VERDICTS = ("seen", "trapped", "held", "missed", "twins_failed", "failed_before")
TIME_LIMIT_S = 7200.0
_PREFIX = f"{WORKLOAD}/"
_SOURCES = Path("allocator") / "tests" / "fault" / "enumerated"
# The compiler must neither see through a misuse nor replace a call.
_FLAGS = ("-O1", "-w", "-std=c++20", "-pthread", "-fno-builtin", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE")


@dataclass(frozen=True)
class Grid:
    """A table as text: the first column names, the others hold cells."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


def build_program() -> Path:
    """The program: the build tree's when it is newer than its sources, otherwise compiled now."""
    folder = paths.root() / _SOURCES
    files = sorted(folder.glob("*.*"))
    if not files:
        raise UserError(f"{folder}: holds no sources; expected the attack suite of a Freestone checkout")
    built = paths.build_dir() / "allocator" / "tests" / "enumerated"
    if built.is_file() and built.stat().st_mtime >= max(file.stat().st_mtime for file in files):
        return built
    return native.compiled("enumerated", files, [*_FLAGS, "-ldl"], "c++")


def run(
    chosen: Sequence[Peer],
    rounds: int = ROUNDS,
    seed: int = 1,
    *,
    kind: str = "",
    progress: Callable[[str], None] | None = None,
) -> Result:
    """`rounds` attacks of each kind whose name contains `kind` under each peer: the same ones under all."""
    program = build_program()
    result = Result(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=["freestone", *sys.argv[1:]],
        seed=seed,
        fingerprint=fingerprint.collect(chosen, [program]),
        peers=list(chosen),
    )
    table: dict[str, Experiment] = {}
    for peer in chosen:
        if progress is not None:
            progress(peer.name)
        failure = proof.probe(peer).failure or ""
        rows: list[dict[str, Any]] = []
        if not failure:
            try:
                rows = _judge(program, peer, rounds, seed, kind)
            except (subprocess.SubprocessError, ValueError, KeyError) as error:
                failure = f"the attacks came to no end: {error}"
        if failure:
            result.fingerprint.setdefault("not_judged", {})[peer.name] = failure
        for row in rows:
            experiment = table.setdefault(row["kind"], _experiment(row["kind"], rounds, seed))
            experiment.samples.append(_sample(peer, row))
    result.experiments = list(table.values())
    return result


def _judge(program: Path, peer: Peer, rounds: int, seed: int, kind: str) -> list[dict[str, Any]]:
    command = [str(program), "--json", "--rounds", str(rounds), "--seed", str(seed), "--kind", kind]
    own = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env = {**own, **discover.preload_environment(peer)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=True)
    told, _ = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index('{"seed"'))  # some allocators print, too
    return list(told["kinds"])


def _experiment(kind: str, rounds: int, seed: int) -> Experiment:
    specs = {"stopped": FigureSpec("ratio", "higher", "seen, trapped or without effect")}
    return Experiment(f"{_PREFIX}{kind}", WORKLOAD, {"rounds": rounds, "seed": seed}, specs)


def _sample(peer: Peer, row: dict[str, Any]) -> Sample:
    counts = {verdict: int(row[verdict]) for verdict in VERDICTS}
    judged = counts["seen"] + counts["trapped"] + counts["held"] + counts["missed"]
    figures = {"stopped": 1 - counts["missed"] / judged} if judged else {}
    return Sample(peer.name, 0, "ok", figures=figures, counts=counts)


def kinds(result: Result) -> dict[str, dict[str, float]]:
    """Each peer's share of stopped attacks per kind. The first peer's worst kind comes first."""
    found = {
        experiment.id.removeprefix(_PREFIX): {
            sample.peer: sample.figures["stopped"] for sample in experiment.samples if "stopped" in sample.figures
        }
        for experiment in result.experiments
        if experiment.workload == WORKLOAD
    }
    first = result.peers[0].name if result.peers else ""
    return dict(sorted(found.items(), key=lambda item: item[1].get(first, 0.0)))


def false_alarms(result: Result) -> dict[str, int]:
    """How many harmless twins failed, or died before the misuse, per peer. Leaves out peers without any."""
    sums: dict[str, int] = {}
    for experiment in result.experiments:
        for sample in experiment.samples:
            wrong = sample.counts.get("twins_failed", 0) + sample.counts.get("failed_before", 0)
            if experiment.workload == WORKLOAD and wrong:
                sums[sample.peer] = sums.get(sample.peer, 0) + wrong
    return sums


def grid(result: Result) -> Grid:
    """Percent stopped per kind, rounded down, so that 100 means all."""
    names = [peer.name for peer in result.peers]

    def cell(shares: dict[str, float], name: str) -> str:
        return "-" if name not in shares else f"{int(100 * shares[name] + 1e-9)}"

    found = kinds(result)
    rows: list[tuple[str, ...]] = [(kind, *(cell(shares, name) for name in names)) for kind, shares in found.items()]
    worst = [min((shares[name] for shares in found.values() if name in shares), default=0.0) for name in names]
    rows.append(("the worst kind", *(f"{int(100 * share + 1e-9)}" for share in worst)))
    notes = [f"{name}: {count} harmless twins failed" for name, count in false_alarms(result).items()]
    notes += [f"{name}: not judged: {why}" for name, why in result.fingerprint.get("not_judged", {}).items()]
    return Grid("Attacks: percent stopped", ("kind", *names), rows, notes)
