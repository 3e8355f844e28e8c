"""Measures one program until the decision is settled, time is up, or somebody ends it. It keeps what it measured."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from freestone_lab.analysis.decision import Decision, Evidence, decide, evidence_of
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Result, control_name
from freestone_lab.engine.experiment import Engine, Interrupted
from freestone_lab.engine.plan import Plan, Report, Task
from freestone_lab.measure import fingerprint
from freestone_lab.measure.recognise import Look

PATIENCE = 2.0  # measuring ends early if settling it would take this many times the time that is left
LEAST_TO_FORETELL = 8  # rounds


@dataclass
class Advice:
    """What a sitting found, even if it ended early."""

    result: Result
    evidence: Evidence
    decision: Decision
    look: Look | None
    round_s: float
    elapsed_s: float
    interrupted: bool


@dataclass
class Adviser:
    """One sitting. `begin` hears what the program is, how many allocators there is time for, and the time so far;
    `board` gets every round's standing."""

    task: Task
    peers: Sequence[Peer]
    plan: Plan
    command: Sequence[str]
    begin: Callable[[Look, int, float], None]
    board: Callable[[Evidence, Decision], None]
    keep: Callable[[Result], None]
    more: Callable[[Evidence, Decision, float], float] = lambda *_: 0.0
    programs: Sequence[Path] = ()
    report: Report = lambda _: None
    baseline: str = "glibc"
    image: str | None = None
    _begun: float = 0.0
    _engine: Engine | None = field(default=None, repr=False)
    _result: Result | None = None

    def run(self) -> Advice:
        """Raises UserError if the program cannot be measured. If somebody ends it, it keeps what there is."""
        self._begun = time.monotonic()
        plan = replace(self.plan, settled=self._settled, more=self._more, started=self._started)
        self._engine = engine = Engine(
            self.task, self.peers, self.baseline, plan, self.report, image=self.image
        )  # fmt: skip
        self._result = Result(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=list(self.command),
            seed=plan.seed,
            fingerprint=fingerprint.collect(self.peers, self.programs),
            peers=list(self.peers),
            baseline=self.baseline,
        )
        try:
            experiment, interrupted = engine.measure(), False
        except Interrupted as stopped:
            experiment, interrupted = stopped.experiment, True
        evidence = self._evidence(experiment)
        self._store(experiment)
        if not any(s.round > 0 and s.status == "ok" for s in experiment.samples) and not interrupted:
            reasons = "; ".join(dict.fromkeys(f"{s.peer}: {s.detail}" for s in experiment.samples if s.detail))
            raise UserError(f"nothing could be compared within the limit{': ' + reasons if reasons else ''}")
        return Advice(
            self._result, evidence, decide(evidence), engine.look, engine.round_s, time.monotonic() - self._begun,
            interrupted,
        )  # fmt: skip

    def _evidence(self, experiment: Experiment) -> Evidence:
        """Evidence about every allocator that still runs."""
        assert self._engine is not None
        return evidence_of(experiment, self._engine.baseline.name)

    def _started(self, look: Look) -> None:
        assert self._engine is not None
        count = len(self._engine.peers) - 1  # without the control
        self.begin(look, count, time.monotonic() - self._begun)

    def _store(self, experiment: Experiment) -> None:
        """Stores the result so far after each round, so that even a killed sitting leaves it."""
        assert self._engine is not None and self._result is not None
        base = self._engine.baseline
        control = control_name(base.name)
        measured = [p for p in self._engine.peers if p.name != control]
        left_out = [p for p in self.peers if p.name in self._engine.not_run]
        self._result.baseline, self._result.peers = base.name, [*measured, *left_out]
        self._result.experiments = [experiment]
        self.keep(self._result)

    def _settled(self, experiment: Experiment, _active: Sequence[str]) -> bool:
        evidence = self._evidence(experiment)
        decision = decide(evidence)
        self.board(evidence, decision)
        self._store(experiment)
        return decision.settled or self._hopeless(evidence, decision)

    def _hopeless(self, evidence: Evidence, decision: Decision) -> bool:
        """Whether far too little time is left to settle the rest."""
        engine = self._engine
        assert engine is not None
        left = engine.left()
        if left is None or evidence.rounds < LEAST_TO_FORETELL:
            return False
        need = None if decision.more_rounds is None else decision.more_rounds * engine.round_s
        return (need is None or need > PATIENCE * left) and self._more() <= 0

    def _more(self) -> float:
        """Seconds that the user grants beyond the limit."""
        assert self._engine is not None
        evidence = self._evidence(self._engine.experiment)
        decision = decide(evidence)
        return 0.0 if decision.settled else self.more(evidence, decision, self._engine.round_s)
