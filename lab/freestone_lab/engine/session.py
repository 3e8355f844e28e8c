"""One sitting of the lab: its peers, the order of its experiments, and what it keeps if it ends early."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer, Result, control_name
from freestone_lab.engine import schedule
from freestone_lab.engine.experiment import SPARE, Engine, Interrupted
from freestone_lab.engine.plan import Plan, Report, Task
from freestone_lab.engine.preparation import BASELINE, Say
from freestone_lab.measure import fingerprint
from freestone_lab.measure.recognise import Look


@dataclass(frozen=True)
class Outcome:
    """`not_run`: experiments and allocators that there was no time for, and why."""

    result: Result
    interrupted: bool
    not_run: dict[str, str] = field(default_factory=dict)


def run(
    tasks: Sequence[tuple[Task, Plan]], chosen: Sequence[Peer], command: Sequence[str], report: Report, *,
    programs: Sequence[Path] = (), keep: Callable[[Result], None] | None = None, say: Say | None = None,
    sitting_s: float | None = None, more: Callable[[Engine], float] | None = None,
) -> Outcome:  # fmt: skip
    """Runs the experiments one after another. Ctrl-C ends the sitting and keeps what was measured.

    All experiments whose plans share a budget divide it. An experiment whose share is too short takes from those after
    it. When the seconds of a single experiment are over, it asks `more` for more. `sitting_s` is for the whole sitting:
    it decides which experiments run and for how many rounds. `keep` gets the result after every experiment. Among
    several tasks, one that fails under the baseline is reported and left out. The error of a single task goes up.
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
    tasks, not_run = _affordable(tasks, chosen, sitting_s)
    costs = [schedule.cost(task, chosen) for task, _ in tasks]
    pace = schedule.Pace()
    speed = 0.0  # how much longer a run takes here than its task says, as far as is known
    for place, (task, given) in enumerate(tasks):
        started = time.monotonic()
        later = [t for t, _ in tasks[place:]]
        if place and not _enough_for(task, given, begun, speed):
            not_run[task.id] = "no time was left"
            continue
        plan = _share(given, begun, later)
        if sitting_s is not None:
            left = sitting_s - (started - begun)
            if place and left < costs[place].once + costs[place].round:
                not_run[task.id] = "no time was left"
                continue
            rounds = schedule.allot(costs[place:], left / pace.factor())[0]
            plan = replace(plan, min_rounds=rounds, max_rounds=rounds, limit_s=left)
        if len(tasks) == 1:
            plan = replace(plan, name_own=True, started=_teller(chosen, plan, say))
        engine = Engine(task, chosen, BASELINE, plan, report, proven, _image(tasks, programs))
        if len(tasks) == 1 and more is not None:
            engine.plan = replace(plan, more=partial(more, engine))
        try:
            experiment = engine.measure()
            _take_names(result, engine, len(tasks))
            result.experiments.append(experiment)
        except Interrupted as stopped:
            _take_names(result, engine, len(tasks))
            if any(s.round > 0 for s in stopped.experiment.samples):
                stopped.experiment.caveats.append("interrupted: fewer rounds than planned")
                result.experiments.append(stopped.experiment)
            not_run |= {t.id: "the sitting was ended" for t, _ in tasks[place + 1 :]}
            return Outcome(result, True, not_run)
        except UserError as error:
            if len(tasks) == 1 or say is None:
                raise
            say(str(error))
        if engine.look is not None and task.seconds > 0:
            speed = max(speed, engine.look.seconds / task.seconds)
        not_run |= {(f"{n} in {task.id}" if len(tasks) > 1 else n): why for n, why in engine.not_run.items()}
        pace.add(costs[place].once + costs[place].round * plan.max_rounds, time.monotonic() - started)
        if keep:
            keep(result)
    return Outcome(result, False, not_run)


def _affordable(
    tasks: Sequence[tuple[Task, Plan]], chosen: Sequence[Peer], sitting_s: float | None
) -> tuple[list[tuple[Task, Plan]], dict[str, str]]:
    """As many experiments as can get LEAST_ROUNDS within the sitting, the cheapest first. At least one."""
    if sitting_s is None:
        return list(tasks), {}
    costs = {task.id: schedule.cost(task, chosen) for task, _ in tasks}
    needed = {name: c.once + LEAST_ROUNDS * c.round for name, c in costs.items()}
    kept: set[str] = set()
    spent = 0.0
    for name in sorted(needed, key=lambda n: needed[n]):
        spent += needed[name]
        if spent <= sitting_s or not kept:
            kept.add(name)
    out = {name: f"needs about {units.words(s)}, more than is left" for name, s in needed.items() if name not in kept}
    return [(task, plan) for task, plan in tasks if task.id in kept], out


def _image(tasks: Sequence[tuple[Task, Plan]], programs: Sequence[Path]) -> str | None:
    return str(programs[-1]) if len(tasks) == 1 and programs else None


def _teller(chosen: Sequence[Peer], plan: Plan, say: Say | None) -> Callable[[Look], None] | None:
    """Says what the program is and how long measuring takes, once its first runs are known."""
    if say is None:
        return None

    def tell(look: Look) -> None:
        say(look.words())
        rounds = plan.min_rounds * look.seconds * (len(chosen) + 1)
        most = f", at most {units.words(plan.budget_s)}" if plan.budget_s else ""
        say(f"{plan.min_rounds} rounds under {len(chosen)} allocators take about {units.words(rounds)}{most}")

    return tell


def _take_names(result: Result, engine: Engine, tasks: int) -> None:
    """A single program that brings an allocator has given the baseline its name."""
    if tasks == 1 and engine.baseline.name != result.baseline:
        result.baseline = engine.baseline.name
        result.peers = [p for p in engine.peers if p.name != control_name(engine.baseline.name)]


def _share(plan: Plan, begun: float, left: Sequence[Task]) -> Plan:
    """The plan with its part of the common budget: the rest of it, divided by how long the remaining tasks take."""
    if plan.budget_s is None:
        return plan
    part = left[0].seconds / sum(task.seconds for task in left)
    rest = plan.budget_s - (time.monotonic() - begun)
    mine = max(1.0, rest * part)
    return replace(plan, budget_s=mine, limit_s=mine, borrow=lambda seconds: max(0.0, min(seconds, rest - mine)))


def _enough_for(task: Task, plan: Plan, begun: float, speed: float) -> bool:
    """Whether the common budget has time for the minimum: the baseline, its control and one rival."""
    if plan.budget_s is None:
        return True
    least = 3 * (1 + LEAST_ROUNDS) * task.seconds * speed * SPARE
    return plan.budget_s - (time.monotonic() - begun) >= least
