"""Which allocator to use: the decision from an experiment's rounds, when it is settled, and what more would settle it.

The rule: take the allocators that are as fast as the fastest (within MARGIN, or not told apart). Of these, choose the
one that takes least memory, or the baseline if it is as good in both. Never recommend an allocator that is shown to
take more than MEMORY_LIMIT times the baseline's memory. All statements about all pairs share one error rate (Bonferroni
over pairs and figures) and hold after every round (`sequential`), so measuring may stop once the decision is settled.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from freestone_lab.analysis import sequential
from freestone_lab.analysis.claims import headline
from freestone_lab.analysis.paired import error_rate
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import Experiment, control_name

MARGIN = 0.03  # smaller differences are no reason to change
MEMORY_LIMIT = 2.0


@dataclass(frozen=True)
class Subject:
    """The two figures that decide, by name. `rate`: the first is a rate, of which more is better."""

    time: str = "wall"
    memory: str = "rss"
    rate: bool = False


@dataclass
class Evidence:
    """The paired ratios of every two allocators of an experiment. Both figures are costs: below 1 is better."""

    experiment: Experiment
    baseline: str
    names: list[str]  # the allocators to judge, the baseline first
    subject: Subject
    _bounds: dict[tuple[str, str, str], Estimate] = field(default_factory=dict)

    @cached_property
    def values(self) -> dict[str, dict[int, tuple[float, float]]]:
        """Per allocator and round: the logarithms of its time and its memory."""
        found: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in self.names}
        for sample in self.experiment.samples:
            time, memory = (sample.figures.get(n, 0.0) for n in (self.subject.time, self.subject.memory))
            if sample.peer in found and sample.round > 0 and sample.status == "ok" and time > 0 and memory > 0:
                cost = -math.log(time) if self.subject.rate else math.log(time)
                found[sample.peer][sample.round] = (cost, math.log(memory))
        return found

    @property
    def alpha(self) -> float:
        return error_rate(self.names)

    @property
    def rounds(self) -> int:
        return min((len(v) for v in self.values.values()), default=0)

    def _ratio(self, figure: int, other: str, to: str) -> Estimate:
        key = (str(figure), other, to)
        if key not in self._bounds:
            a, b = self.values[other], self.values[to]
            logs = [a[r][figure] - b[r][figure] for r in sorted(a.keys() & b.keys())]
            self._bounds[key] = sequential.estimate(logs, self.alpha)
            self._bounds[str(figure), to, other] = self._bounds[key].inverse
        return self._bounds[key]

    def time(self, other: str, to: str) -> Estimate:
        return self._ratio(0, other, to)

    def memory(self, other: str, to: str) -> Estimate:
        return self._ratio(1, other, to)

    def typical(self, name: str, figure: str) -> float | None:
        """The median of a figure over an allocator's good rounds."""
        found = sorted(
            s.figures[figure]
            for s in self.experiment.samples
            if s.peer == name and s.round > 0 and s.status == "ok" and figure in s.figures
        )
        return found[len(found) // 2] if found else None


def evidence_of(experiment: Experiment, baseline: str, controls: Collection[str] = ()) -> Evidence:
    """What an experiment says about every allocator that never failed, by the figures that its table shows."""
    time, memory = (*headline(experiment), "rss")[:2]
    subject = Subject(time, memory, experiment.specs[time].better == "higher")
    measured = dict.fromkeys(s.peer for s in experiment.samples if s.round > 0)
    failed = {s.peer for s in experiment.samples if s.status != "ok"}
    out = {baseline, control_name(baseline), *controls, *failed}
    return Evidence(experiment, baseline, [baseline, *(n for n in measured if n not in out)], subject)


@dataclass(frozen=True)
class Decision:
    """What to use. `open` are the allocators that more measuring could still put in its place."""

    use: str
    open: tuple[str, ...]
    wasteful: tuple[str, ...]  # shown to take more than MEMORY_LIMIT times the baseline's memory
    more_rounds: int | None  # that would settle it; None when that is out of reach

    @property
    def settled(self) -> bool:
        return not self.open


def decide(evidence: Evidence) -> Decision:
    """The decision after the rounds so far."""
    baseline, names = evidence.baseline, evidence.names
    wasteful = tuple(n for n in names if n != baseline and evidence.memory(n, baseline).low > MEMORY_LIMIT)
    fit = [n for n in names if n not in wasteful]
    if evidence.rounds < 1:
        return Decision(baseline, tuple(n for n in fit if n != baseline), wasteful, None)
    fastest = min(fit, key=lambda n: evidence.time(n, baseline).ratio)
    fast = [n for n in fit if _as_fast(evidence.time(n, fastest))]
    least = min(evidence.memory(n, baseline).ratio for n in fast)
    lean = [n for n in fast if evidence.memory(n, baseline).ratio <= least * (1 + MARGIN)]
    use = baseline if baseline in lean else min(lean, key=lambda n: evidence.time(n, baseline).ratio)
    unsettled = tuple(n for n in fit if n != use and not _settled(evidence, use, n))
    return Decision(use, unsettled, wasteful, _more_rounds(evidence, use, unsettled))


def _as_fast(to_fastest: Estimate) -> bool:
    """Whether it is not shown to be slower, or slower by less than anybody minds."""
    return not to_fastest.above or to_fastest.high <= 1 + MARGIN


def _settled(evidence: Evidence, use: str, other: str) -> bool:
    """Whether `other` is no reason to leave `use`: shown slower, or at most MARGIN better in time and in memory."""
    time, memory = evidence.time(other, use), evidence.memory(other, use)
    least = 1 / (1 + MARGIN)
    if time.low >= least and memory.low >= least:
        return True
    return time.above and time.high > 1 + MARGIN


def _more_rounds(evidence: Evidence, use: str, unsettled: Sequence[str]) -> int | None:
    """How many rounds more would settle everything, if the ratios and their noise stay as they are."""
    needed = 0
    for other in unsettled:
        rounds = _rounds_for(evidence.time(other, use), evidence.memory(other, use), evidence.alpha)
        if rounds is None:
            return None
        needed = max(needed, rounds - evidence.rounds)
    return max(needed, 1) if unsettled else 0


def _rounds_for(time: Estimate, memory: Estimate, alpha: float) -> int | None:
    """The cheaper way to settle one pair: show it slower, or show that it is at most MARGIN better in both."""
    slack = math.log1p(MARGIN)
    slower = sequential.rounds_until(time.noise, math.log(time.ratio), alpha)
    halves = [sequential.rounds_until(b.noise, math.log(b.ratio) + slack, alpha) for b in (time, memory)]
    both = None if None in halves else max(h for h in halves if h is not None)
    known = [r for r in (slower, both) if r is not None]
    # A clear difference the other way changes the recommendation, which settles it too.
    faster = sequential.rounds_until(time.noise, -math.log(time.ratio), alpha)
    return min([*known, *([faster] if faster is not None else [])], default=None)
