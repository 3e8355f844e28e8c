"""How often the lab errs about allocators of known cost and in its intervals: simulated, and with real processes.

The real allocator is the control `costly`: glibc's, with a known part of CPU time and memory on top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from freestone_lab.analysis import calibration
from freestone_lab.analysis.calibration import (
    ALL_SHAPES,
    COMMANDS,
    COSTS,
    KINDS,
    SHAPES,
    Cost,
    Coverage,
    Judged,
    Judgement,
)
from freestone_lab.analysis.decision import decide, evidence_of
from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core.result import Peer, control_name
from freestone_lab.engine import session
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.plan import Plan, Report, Task
from freestone_lab.measure import fingerprint
from freestone_lab.peers import discover

SCHEMA = "freestone-known-costs/1"
ROUNDS = (*range(LEAST_ROUNDS, 16), 20, 25, 30, 60, 100)
REAL, BOTH = "a real program", "compare and advise"
REAL_COSTS = tuple(cost for cost in COSTS if cost.cpu >= 1 and cost.memory >= 1)
INTERVALS = 10  # times as many sittings for the intervals, which are quick
CONTROL = "libcontrol-costly.so"
REAL_S = 12.0  # of one sitting; a program of 80 ms gets some fifty rounds
Say = Callable[[str], None]


@dataclass(frozen=True)
class Rates:
    coverage: list[Coverage]
    judgements: list[Judgement]

    def stored(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            **fingerprint.in_short(),
            "coverage": [{**asdict(c), "rate": c.rate} for c in self.coverage],
            "judgements": [asdict(j) for j in self.judgements],
        }

    def lines(self) -> list[str]:
        """The worst coverage of each kind of interval, and the rates of each command over all costs."""
        said = []
        for kind in KINDS:
            worst = min((c for c in self.coverage if c.kind == kind and c.rate is not None), key=lambda c: c.rate or 0)
            held = f"hold the truth in {100 * (worst.rate or 0):.1f} % or more"
            said.append(f"intervals {kind}: {held} ({worst.shape}, {worst.rounds} rounds)")
        for command in (*COMMANDS, BOTH):
            for place in dict.fromkeys(j.shape for j in self.judgements):
                own = [j for j in self.judgements if (j.command, j.shape) == (command, place)]
                for what in ("verdicts", "answers") if own else ():
                    total: Counter[str] = Counter()
                    for judgement in own:
                        total.update(getattr(judgement, what))
                    every = total.total()
                    shares = ", ".join(f"{100 * total[k] / every:.1f} % {k}" for k in ("right", "open", "wrong"))
                    said.append(f"{command}, {place}: {what} {shares}")
        return said


def simulated(times: int, say: Say) -> Rates:
    """Coverage of every interval, and the judgements of every cost, from `times` simulated sittings each."""
    many = INTERVALS * times
    found = [
        calibration.coverage(kind, shape, rounds, many) for kind in KINDS for shape in ALL_SHAPES for rounds in ROUNDS
    ]
    judged = []
    for command in COMMANDS:
        for cost in COSTS:
            for shape in SHAPES:
                judged.append(calibration.judge(cost, shape, command, times))
            say(f"{command}, {cost.name}: simulated")
    return Rates(found, judged)


def costly(cost: Cost) -> Peer:
    """The control of this cost, as an allocator that is judged."""
    env = (
        ("FREESTONE_CONTROL_CPU_PERMILLE", f"{round((cost.cpu - 1) * 1000)}"),
        ("FREESTONE_CONTROL_MEMORY_PERMILLE", f"{round((cost.memory - 1) * 1000)}"),
    )
    return replace(discover.find("costly"), name=calibration.SHIM, kind="preload", env=env)


def real(task: Task, costs: Sequence[Cost], sittings: int, report: Report, say: Say) -> list[Judgement]:
    """The same with real processes, as `compare` and `advise` measure them."""
    return [_judge(task, cost, sittings, report, say) for cost in costs]


def _judge(task: Task, cost: Cost, sittings: int, report: Report, say: Say) -> Judgement:
    found = Judged(cost)
    chosen = [discover.find(discover.LIBC_PEER), costly(cost)]
    for seed in range(sittings):
        plan = Plan(decide=True, seed=seed)
        outcome = session.run([(task, plan)], chosen, ["x"], report, budget=Budget(REAL_S))
        experiment = outcome.result.experiments[0]
        again = [control_name(calibration.BASELINE)]
        found.add(experiment, decide(evidence_of(experiment, calibration.BASELINE, again)))
    say(f"{cost.name}: verdicts {dict(found.verdicts)}, answers {dict(found.answers)}")
    return found.judgement(REAL, BOTH)
