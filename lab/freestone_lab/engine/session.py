"""One sitting of the lab: all its experiments, within one limit, until each is decided.

First every experiment gets its first look in turn: warm-up, proof, and LEAST_ROUNDS rounds under every allocator. Then
rounds go to whoever has fewest and is not decided, until all are or the time is up. What there was no time for is
named.
"""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.analysis.decision import Decision, Evidence
from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer, Result, control_name
from freestone_lab.engine.budget import Budget
from freestone_lab.engine.experiment import SPARE, Engine
from freestone_lab.engine.plan import Plan, Report, Task
from freestone_lab.engine.preparation import BASELINE, Say
from freestone_lab.measure import fingerprint
from freestone_lab.measure.recognise import Look


@dataclass(frozen=True)
class Outcome:
    """`not_run`: experiments and allocators that there was no time for, and why. `engines` did the work."""

    result: Result
    interrupted: bool
    not_run: dict[str, str] = field(default_factory=dict)
    engines: list[Engine] = field(default_factory=list)


@dataclass
class Sitting:
    """Runs tasks under the chosen allocators. Ctrl-C ends it and keeps what was measured.

    `budget` is for all of it. `keep` gets the result after every look at a single task's rounds, and after
    every first look otherwise. `board` gets the standing at each look. Among several tasks, one that fails under the
    baseline is reported and left out. The error of a single task goes up.
    """

    tasks: Sequence[tuple[Task, Plan]]
    chosen: Sequence[Peer]
    command: Sequence[str]
    report: Report
    programs: Sequence[Path] = ()
    keep: Callable[[Result], None] = lambda _: None
    say: Say = lambda _: None
    budget: Budget = field(default_factory=Budget)
    board: Callable[[Evidence, Decision], None] = lambda *_: None

    def _aged(self) -> dict[str, int]:
        seeds = [plan.aged for _, plan in self.tasks if plan.aged is not None]
        return {"aged": seeds[0]} if seeds else {}

    def run(self) -> Outcome:
        self.budget.begin()
        self.engines: list[Engine] = []
        self.not_run: dict[str, str] = {}
        self.result = Result(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=list(self.command),
            seed=self.tasks[0][1].seed if self.tasks else 0,
            fingerprint=fingerprint.collect(self.chosen, self.programs) | self._aged(),
            peers=list(self.chosen),
            baseline=BASELINE,
        )
        interrupted = False
        try:
            self._first_looks()
            self._rounds()
            for engine in self.engines:
                engine.count()
        except KeyboardInterrupt:
            interrupted = True
            begun = {engine.task.id for engine in self.engines}
            self.not_run |= {t.id: "the sitting was ended" for t, _ in self.tasks if t.id not in begun}
        finally:
            for engine in self.engines:
                engine.close(interrupted)
        self._store()
        for engine in self.engines:
            if not any(s.round > 0 for s in engine.experiment.samples):
                self.not_run.setdefault(engine.task.id, "no time was left")
        several = len(self.tasks) > 1
        for engine in self.engines:
            unmeasured = {(f"{n} in {engine.task.id}" if several else n): why for n, why in engine.not_run.items()}
            self.not_run |= unmeasured
        return Outcome(self.result, interrupted, self.not_run, self.engines)

    def _first_looks(self) -> None:
        proven: set[tuple[str, str]] = set()
        speed = 0.0  # how much longer a run takes here than its task says, as far as is known
        for task, plan in self.tasks:
            foreseen = _least_s(task, self.chosen) * speed
            if foreseen > self.budget.left():
                self.not_run[task.id] = f"needs about {units.words(foreseen)}, more than is left"
                continue
            engine = Engine(task, self.chosen, BASELINE, plan, self.report, proven, self._image(), self.budget)
            self.engines.append(engine)
            if len(self.tasks) == 1:
                engine.started = self._started
            try:
                engine.begin()
                while not engine.decided and engine.rounds < LEAST_ROUNDS and self._round(engine):
                    pass
            except UserError as error:
                self.engines.pop().close(False)
                if len(self.tasks) == 1:
                    raise
                self.say(str(error))
                continue
            if task.seconds > 0 and engine.look is not None:
                speed = max(speed, engine.look.seconds / task.seconds)
            self._store()

    def _rounds(self) -> None:
        while True:
            fit = [e for e in self.engines if not e.decided and e.longest_s <= self.budget.left()]
            if fit:
                engine = min(fit, key=lambda e: (e.rounds, e.round_s))
                self._round(engine)
            elif not self._granted():
                return

    def _round(self, engine: Engine) -> bool:
        seen = engine.standing
        whole = engine.round()
        if engine.standing is not seen and engine.standing is not None and len(self.tasks) == 1:
            self.board(*engine.standing)
            self._store()
        return whole

    def _granted(self) -> bool:
        """Whether the user lets an open question go on."""
        open_ = [e for e in self.engines if not e.decided and e.standing is not None]
        if len(self.tasks) != 1 or not open_ or open_[0].standing is None:
            return False
        evidence, decision = open_[0].standing
        return not decision.settled and self.budget.extend((decision.more_rounds or evidence.rounds) * open_[0].round_s)

    def _started(self, engine: Engine, look: Look) -> None:
        """Says what the single program is and how long measuring takes, once its first runs are known."""
        self.say(look.words())
        if engine.nothing_to_win:
            return
        count = len(engine.peers) - 1  # without the control
        idle_s = engine.task.server.idle_s * len(engine.peers) if engine.task.server else 0.0
        least = _least_s(engine.task, self.chosen) / engine.task.seconds * look.seconds * SPARE + idle_s
        self.budget.grow(least)
        most = f", at most {units.words(self.budget.seconds)} in all" if self.budget.seconds else ""
        self.say(f"measuring {count} allocators takes about {units.words(least)} or more{most}")

    def _image(self) -> str | None:
        return str(self.programs[-1]) if len(self.tasks) == 1 and self.programs else None

    def _store(self) -> None:
        """Stores the result so far, so that even a killed sitting leaves it."""
        if len(self.tasks) == 1 and self.engines:  # a program that brings an allocator has given the baseline its name
            engine = self.engines[0]
            again = control_name(engine.baseline.name)
            self.result.baseline = engine.baseline.name
            left_out = [p for p in self.chosen if p.name in engine.not_run and p not in engine.peers]
            self.result.peers = [*(p for p in engine.peers if p.name != again), *left_out]
        found = (engine.experiment for engine in self.engines)
        self.result.experiments = [e for e in found if any(s.round > 0 for s in e.samples)]
        if self.result.experiments:
            self.keep(self.result)


def _least_s(task: Task, chosen: Sequence[Peer]) -> float:
    """What a first look takes, if a run takes what the task says: a proof and LEAST_ROUNDS of everybody."""
    rows = 1 + sum(p.name not in task.unfit for p in chosen)
    return (1 + LEAST_ROUNDS) * rows * task.seconds
