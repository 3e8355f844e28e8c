"""One sitting of the lab: which peers, in which order the experiments run, and what is kept when it ends early."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import importlib.util
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from freestone_lab import fingerprint, packages, paths, peers, schedule
from freestone_lab.errors import UserError
from freestone_lab.method import Engine, Interrupted, Plan, Report, Task
from freestone_lab.model import Peer, Result, save

# The rivals of a plain `compare`: one of each family, the newest that is present.
FAMILIES = ("freestone", "jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")
BASELINE = peers.LIBC_PEER
Say = Callable[[str], None]


def ensure_library(say: Say) -> None:
    """Builds libfreestone when this repository has none yet; says so when that fails, and goes on without it."""
    try:
        root = paths.root()
    except UserError:
        return
    if (paths.build_dir() / "libfreestone.so").exists():
        return
    say("building libfreestone (once)")
    done = subprocess.run(
        [str(root / "freestone"), "lib"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        say(f"libfreestone could not be built and is left out: {lines[-1] if lines else 'no message'}")


def ensure_packages(wanted: Sequence[str], say: Say) -> None:
    """Installs packages where that is allowed; otherwise names the line to type."""
    if not wanted:
        return
    say(f"installing {' '.join(wanted)}" if packages.privilege() is not None else f"missing: {' '.join(wanted)}")
    left = packages.install(list(wanted))
    if left:
        say(f"not installed; type: {packages.command_line(left)}")


def choose_peers(with_names: Sequence[str], only: Sequence[str]) -> list[Peer]:
    """The baseline, then `only`, or else the default families followed by `with_names`. `all` stands for every peer.

    Names may also stand in one word with commas between them; the path of `NAME=path.so` is left as it is.
    """
    with_names, only = _split(with_names), _split(only)
    found = peers.discover()
    if "all" in with_names or "all" in only:
        everyone = [p for p in found if p.kind != "control"]
        extra = [n for n in (*with_names, *only) if n != "all"]
        return _unique([*everyone, *peers.discover(only=extra)] if extra else everyone)
    baseline = peers.find(BASELINE)
    if only:
        return _unique([baseline, *peers.discover(only=[*only, *with_names])])
    defaults: list[Peer] = []
    for family in FAMILIES:
        with contextlib.suppress(peers.PeerError):
            defaults.append(peers.discover(only=[family])[0])
    extra_peers = peers.discover(only=list(with_names)) if with_names else []
    return _unique([baseline, *defaults, *extra_peers])


def _split(names: Sequence[str]) -> list[str]:
    return [part for name in names for part in ([name] if "=" in name else name.split(",")) if part]


def _unique(found: Sequence[Peer]) -> list[Peer]:
    return list({p.name: p for p in found}.values())


@dataclass(frozen=True)
class Outcome:
    result: Result
    interrupted: bool


def run(
    tasks: Sequence[tuple[Task, Plan]], chosen: Sequence[Peer], command: Sequence[str], report: Report, *,
    programs: Sequence[Path] = (), keep: Callable[[Result], None] | None = None, say: Say | None = None,
    sitting_s: float | None = None,
) -> Outcome:  # fmt: skip
    """Runs the experiments one after another. Ctrl-C ends the sitting and keeps what was measured.

    A plan's budget is for all experiments whose plans share it. `sitting_s` is for the whole sitting and decides the
    rounds of each experiment before it starts, by what is left then. `keep` gets the result after every experiment.
    With several tasks, one that fails under the baseline is said and left out; with one, its error goes up.
    """
    result = Result(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=list(command),
        seed=tasks[0][1].seed if tasks else 0,
        fingerprint=fingerprint.collect(chosen, programs),
        peers=list(chosen),
        baseline=BASELINE,
    )
    begun = time.monotonic()
    proven: set[tuple[str, str]] = set()
    costs = [schedule.cost(task, chosen) for task, _ in tasks]
    pace = schedule.Pace()
    for place, (task, given) in enumerate(tasks):
        started = time.monotonic()
        plan = _share(given, begun, [t for t, _ in tasks[place:]])
        if sitting_s is not None:
            left = (sitting_s - (started - begun)) / pace.factor()
            rounds = schedule.allot(costs[place:], left)[0]
            plan = replace(plan, min_rounds=rounds, max_rounds=rounds)
        try:
            engine = Engine(task, chosen, BASELINE, plan, report, proven)
            result.experiments.append(engine.measure())
        except Interrupted as stopped:
            if any(s.round > 0 for s in stopped.experiment.samples):
                stopped.experiment.caveats.append("interrupted: fewer rounds than planned")
                result.experiments.append(stopped.experiment)
            return Outcome(result, True)
        except UserError as error:
            if len(tasks) == 1 or say is None:
                raise
            say(str(error))
        pace.add(costs[place].once + costs[place].round * plan.max_rounds, time.monotonic() - started)
        if keep:
            keep(result)
    return Outcome(result, False)


def _share(plan: Plan, begun: float, left: Sequence[Task]) -> Plan:
    """The plan with its part of the common budget: what is left of it, divided by how long the tasks to come take."""
    if plan.budget_s is None or plan.budget_share == 1:
        return plan
    part = left[0].seconds / sum(task.seconds for task in left)
    return replace(plan, budget_s=max(1.0, (plan.budget_s - (time.monotonic() - begun)) * part))


def fresh_seed() -> int:
    return secrets.randbelow(1 << 31)


def result_path(kind: str) -> Path:
    """A new name below results/."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return paths.results_dir() / f"{kind}-{stamp}.json"


def store(result: Result, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save(result, path)
    return path


def write_report(result: Result, path: Path, say: Say) -> Path | None:
    """The HTML report, when that part of the lab is there."""
    if importlib.util.find_spec("freestone_lab.report") is None:
        say("no HTML report: freestone_lab.report is absent")
        return None
    module = importlib.import_module("freestone_lab.report")
    if not hasattr(module, "write_report"):
        say("no HTML report: freestone_lab.report has no write_report")
        return None
    module.write_report([result], path)
    return path


def to_stderr(text: str) -> None:
    """The usual `say`: one line to the user, beside the data on stdout."""
    print(f"freestone: {text}", file=sys.stderr)
