"""How often the lab errs about allocators of known cost and in its intervals: simulated, and with real processes.

The real allocator is the control `costly`: glibc's, with a known part of CPU time and memory on top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from freestone_lab.analysis import calibration
from freestone_lab.analysis.calibration import COMMANDS, COSTS, KINDS, SHAPES, Answer, Cost, Coverage, Judgement
from freestone_lab.analysis.claims import table_of
from freestone_lab.analysis.decision import decide, evidence_of
from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core.result import Peer
from freestone_lab.engine import session
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.plan import Plan, Report, Task
from freestone_lab.peers import discover

SCHEMA = "freestone-known-costs/1"
ROUNDS = (*range(LEAST_ROUNDS, 16), 20, 25, 30)
REAL = "a real program"
REAL_COSTS = tuple(cost for cost in COSTS if cost.cpu >= 1 and cost.memory >= 1)
INTERVALS = 10  # times as many sittings for the intervals, which are quick
LIMIT_S = {"compare": 60.0, "advise": 90.0}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Rates:
    coverage: list[Coverage]
    judgements: list[Judgement]

    def stored(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
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
        for command in COMMANDS:
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
    found = [calibration.coverage(kind, shape, rounds, many) for kind in KINDS for shape in SHAPES for rounds in ROUNDS]
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
    """The same with real processes, as both commands measure them."""
    return [_judge(task, cost, command, sittings, report, say) for command in COMMANDS for cost in costs]


def _judge(task: Task, cost: Cost, command: str, sittings: int, report: Report, say: Say) -> Judgement:
    verdicts: Counter[Answer] = Counter()
    answers: Counter[Answer] = Counter()
    rounds = 0
    for seed in range(sittings):
        plan = Plan(decide=True, precision=COMMANDS[command], seed=seed)
        chosen = [discover.find(discover.LIBC_PEER), costly(cost)]
        outcome = session.run([(task, plan)], chosen, ["x"], report, budget=Budget(LIMIT_S[command]))
        experiment = outcome.result.experiments[0]
        decision = decide(evidence_of(experiment, calibration.BASELINE))
        row = table_of(experiment, calibration.BASELINE).row(calibration.SHIM)
        figure = "rss" if cost.memory != 1 else "cpu"
        verdict = row.cells[figure].verdict if row is not None and figure in row.cells else "inconclusive"
        verdicts[calibration.verdict_is(cost, verdict, figure)] += 1
        answers[calibration.answer_is(cost, decision)] += 1
        rounds += outcome.engines[0].rounds
    say(f"{command}, {cost.name}: verdicts {dict(verdicts)}, answers {dict(answers)}")
    return Judgement(cost.name, REAL, command, sittings, dict(verdicts), dict(answers), rounds / sittings)
