"""Which allocator to use: the decision from an experiment's rounds, when it is settled, and what more would settle it.

The rule: leave out who is shown to be slower than another by more than MARGIN, in CPU time or in time, and faster in
neither. Of the others, choose who takes least memory, or the baseline if it is as good. Never choose an allocator that
is shown to take more than MEMORY_LIMIT times the baseline's memory. Differences of memory below MEMORY_FLOOR_KIB choose
nobody. Another allocator than the baseline is recommended only if an interval excludes "no difference", if it is shown
to be at most MARGIN slower, and if nothing is worse under it by more than something else is better; otherwise it is the
user's choice.

The statements about all pairs and figures hold together, after every round (`sequential`), so who has lost need not
run any more. Once the choice is settled, those run on whose ratio to the baseline is not known well enough.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

from freestone_lab.analysis import inference, sequential
from freestone_lab.analysis.claims import judged_times, memory_figure
from freestone_lab.analysis.paired import error_rate, good_runs, judged, of_rounds
from freestone_lab.analysis.sequential import LEAST_ROUNDS, Estimate
from freestone_lab.core.result import Experiment, control_name

MARGIN = inference.SAME  # smaller differences are no reason to change
MEMORY_LIMIT = 2.0
MEMORY_FLOOR_KIB = 4096.0
TRADE_FLOOR_KIB = 1024.0  # more than start-up makes of it

Unknown = Literal["", "rounds", "not measured", "noise"]


@dataclass
class Evidence:
    """The paired ratios of every two allocators of an experiment, by the figures that its table shows."""

    experiment: Experiment
    baseline: str
    names: list[str]  # the allocators to judge, the baseline first; who failed is not among them
    alpha: float  # the error rate of an interval of a pair with the baseline
    rivals_alpha: float  # and of any other pair
    _estimates: dict[tuple[str, str, str], Estimate] = field(default_factory=dict, repr=False)

    @cached_property
    def times(self) -> tuple[str, ...]:
        """The figures of time that decide. The first one leads: it is named first, and who is close is told by it."""
        return judged_times(self.experiment)

    @cached_property
    def memory_figure(self) -> str:
        return memory_figure(self.experiment)

    @cached_property
    def rounds(self) -> int:
        return len(self.values(self.baseline, self.times[0]))

    @cached_property
    def _good(self) -> Mapping[str, Mapping[int, Mapping[str, float]]]:
        return good_runs(self.experiment)

    def values(self, name: str, figure: str) -> dict[int, float]:
        """The figure of every good run, by round."""
        return {n: figures[figure] for n, figures in self._good.get(name, {}).items() if figure in figures}

    def estimate(self, figure: str, other: str, to: str) -> Estimate:
        """The ratio of the figure itself, as tables show it from two pairs of runs on."""
        key = figure, other, to
        if key not in self._estimates:
            ours, theirs = self.values(other, figure), self.values(to, figure)
            alpha = self.alpha if {other, to} & {self.baseline, control_name(self.baseline)} else self.rivals_alpha
            found = of_rounds(ours, theirs, alpha, bool(self.experiment.rounds_fixed))
            alone = [math.log(ours[n] / theirs[n]) for n in ours.keys() & theirs.keys() if ours[n] > 0 < theirs[n]]
            self._estimates[key] = found or sequential.estimate(alone[:1], alpha)
        return self._estimates[key]

    def cost(self, figure: str, other: str, to: str) -> Estimate:
        """The same, turned so that less is better."""
        spec = self.experiment.specs.get(figure)
        higher = spec is not None and spec.better == "higher"
        return self.estimate(figure, to, other) if higher else self.estimate(figure, other, to)

    def time(self, other: str, to: str) -> Estimate:
        return self.cost(self.times[0], other, to)

    def memory(self, other: str, to: str) -> Estimate:
        return self.cost(self.memory_figure, other, to)

    def slower(self, one: str, other: str) -> bool:
        """Whether `one` is shown to be slower by more than MARGIN, and faster in nothing.

        Where it saves no memory, to be slower, by perhaps as much, is enough.
        """
        costs = [self.cost(figure, one, other) for figure in self.times]
        saves = self.wastes(other, one, 1 + MARGIN)
        slower = any((c.low if saves else c.high) > 1 + MARGIN and c.above for c in costs)
        return slower and not any(c.below for c in costs)

    def wastes(self, one: str, other: str, limit: float, floor_kib: float = MEMORY_FLOOR_KIB) -> bool:
        """Whether `one` takes more than `limit` times as much memory, by the middle pair, and more than the floor."""
        ratio, typical = self.memory(one, other).ratio, self.typical(other, self.memory_figure)
        in_kib = self.memory_figure in self.experiment.specs and self.experiment.specs[self.memory_figure].unit == "KiB"
        return ratio > limit and (not in_kib or typical is None or typical * (ratio - 1) > floor_kib)

    def better_in(self, name: str) -> list[str]:
        """The judged figures in which an allocator is shown to be better than the baseline, against both its runs."""
        if self.slower(name, self.baseline):
            return []
        found = [f for f in self.times if self.verdict(f, name) == "better"]
        saves = self.wastes(self.baseline, name, 1.0) and self.verdict(self.memory_figure, name) == "better"
        return [*found, *([self.memory_figure] if saves else [])]

    def is_a_trade(self, name: str) -> bool:
        """Whether a judged figure is shown to be worse under an allocator by more than any is shown to be better.

        Memory counts from TRADE_FLOOR_KIB more on.
        """
        shown = {f: self.verdict(f, name) for f in (*self.times, self.memory_figure)}
        if not self.wastes(name, self.baseline, 1.0, TRADE_FLOOR_KIB) and shown[self.memory_figure] == "worse":
            del shown[self.memory_figure]
        costs = {f: self.cost(f, name, self.baseline).ratio for f in shown}
        lost = max((costs[f] - 1 for f in shown if shown[f] == "worse"), default=0.0)
        return lost > max((1 - costs[f] for f in shown if shown[f] == "better"), default=0.0)

    def verdict(self, figure: str, name: str) -> inference.Verdict:
        """What the table says of it."""
        again = control_name(self.baseline)
        spec = self.experiment.specs.get(figure)
        if spec is None:
            return "inconclusive"
        twice = bool(self.values(again, figure))
        floor = inference.noise_floor(self.estimate(figure, again, self.baseline)) if twice else 0.0
        second = partial(self.estimate, figure, name, again) if twice else lambda: None
        return inference.verdict(self.estimate(figure, name, self.baseline), floor, spec.better, second)

    def typical(self, name: str, figure: str) -> float | None:
        """The baseline's median; another's is that times its ratio, so that what is shown agrees."""
        found = list(self.values(self.baseline, figure).values())
        if not found:
            return None
        middle = inference.summarise(found).median
        return middle if name == self.baseline else middle * self.estimate(figure, name, self.baseline).ratio


def evidence_of(experiment: Experiment, baseline: str, controls: Collection[str] = ()) -> Evidence:
    """What an experiment says about every allocator that never failed."""
    every = judged([experiment], baseline, controls)
    measured = {s.peer for s in experiment.samples if s.round > 0}
    failed = {s.peer for s in experiment.samples if s.status != "ok"}
    names = [n for n in every if n == baseline or (n in measured and n not in failed)]
    fixed = bool(experiment.rounds_fixed)
    return Evidence(experiment, baseline, names, error_rate(every, fixed), error_rate(every, fixed, True))


@dataclass(frozen=True)
class Decision:
    """What to use, or what it may be. `open` are the allocators that more measuring could still put in its place."""

    use: str
    unknown: Unknown  # why nothing is recommended; "" if `use` is
    open: tuple[str, ...]
    wasteful: tuple[str, ...]  # shown to take more than MEMORY_LIMIT times the baseline's memory
    lost: tuple[str, ...]  # shown to be slower than another
    more_rounds: int | None  # that would settle it; None when that is out of reach
    best: tuple[str, ...] = ()  # not shown to be worse than `use`, which is among them
    is_a_trade: bool = False  # `use` is better in something, and worse by more in something else

    @property
    def settled(self) -> bool:
        """Whether more rounds would change nothing."""
        return not self.open and self.unknown in ("", "not measured")


def decide(evidence: Evidence) -> Decision:
    """The decision after the rounds so far."""
    baseline, others = evidence.baseline, evidence.names[1:]
    wasteful = tuple(n for n in others if _is_wasteful(evidence, n))
    fit = [n for n in evidence.names if n not in wasteful]
    if evidence.rounds < 1:
        return Decision(baseline, "rounds", tuple(fit[1:]), wasteful, (), None)
    lost = tuple(n for n in fit if any(evidence.slower(n, m) for m in fit if m != n))
    fast = [n for n in fit if n not in lost] or fit
    least = min(fast, key=lambda n: evidence.memory(n, baseline).ratio)
    lean = [n for n in fast if not evidence.wastes(n, least, 1 + MARGIN)]
    use = baseline if baseline in lean else min(lean, key=lambda n: evidence.time(n, baseline).ratio)
    unsettled = tuple(n for n in fast if n != use and not _settled(evidence, use, n))
    return Decision(
        use, _unknown(evidence, use, unsettled), unsettled, wasteful, tuple(n for n in lost if n != baseline),
        _more_rounds(evidence, use, unsettled), tuple(lean), use != baseline and evidence.is_a_trade(use),
    )  # fmt: skip


def _is_known(evidence: Evidence, name: str, precision: float) -> bool:
    """Whether time and memory are known within `precision` of the baseline's.

    Where no difference is claimed of time, and not that there is none, it takes half of that.
    """
    time, memory = evidence.time(name, evidence.baseline), evidence.memory(name, evidence.baseline)
    said = name == control_name(evidence.baseline) or evidence.verdict(evidence.times[0], name) != "inconclusive"
    return memory.half_width <= precision and time.half_width <= (precision if said else precision / 2)


def racing(evidence: Evidence, decision: Decision, precision: float) -> set[str]:
    """Who runs on beside the baseline; nobody once nothing is left to measure.

    Until the choice is settled, all who have not lost. Then whoever is not known within `precision`, the losers again
    among them. The baseline's second run goes along: a claim must hold against both.
    """
    again = control_name(evidence.baseline)
    control = {again} if evidence.values(again, evidence.times[0]) else set()
    names = {*evidence.names[1:], *control}
    if evidence.rounds < LEAST_ROUNDS:
        return names
    if not decision.settled:
        return names - {*decision.lost, *decision.wasteful}
    open_ = {name for name in names if not _is_known(evidence, name, precision)}
    return open_ | control if open_ else open_


def _unknown(evidence: Evidence, use: str, unsettled: Sequence[str]) -> Unknown:
    if evidence.experiment.not_run:
        return "not measured"
    if evidence.rounds < LEAST_ROUNDS:
        return "rounds"
    if use == evidence.baseline:
        return "noise" if unsettled else ""
    time = evidence.time(use, evidence.baseline)
    return "" if evidence.better_in(use) and (time.below or time.high <= 1 + MARGIN) else "noise"


def _is_wasteful(evidence: Evidence, name: str) -> bool:
    base = evidence.baseline
    return evidence.memory(name, base).low > MEMORY_LIMIT and evidence.wastes(name, base, MEMORY_LIMIT)


def _settled(evidence: Evidence, use: str, other: str) -> bool:
    """Whether `other` is no reason to leave `use`: shown slower, or at most MARGIN better in time and in memory."""
    if evidence.slower(other, use):
        return True
    least = 1 / (1 + MARGIN)
    memory = evidence.memory(other, use)
    lean = memory.low >= least or (memory.is_known and not evidence.wastes(use, other, 1 + MARGIN))
    return evidence.time(other, use).low >= least and lean


def _more_rounds(evidence: Evidence, use: str, unsettled: Sequence[str]) -> int | None:
    """How many rounds more would settle everything, if the ratios and their noise stay as they are."""
    needed = [_rounds_for(*_costs(evidence, o, use), evidence.alpha) for o in unsettled]
    if use != evidence.baseline and not evidence.better_in(use):
        needed.append(_rounds_to_show(evidence, use))
    known = [rounds for rounds in needed if rounds is not None]
    if len(known) < len(needed):
        return None
    return max(1, max(known) - evidence.rounds) if known else 0


def _costs(evidence: Evidence, one: str, other: str) -> tuple[Estimate, Estimate]:
    """Time and memory, with the noise that their intervals show."""
    time, memory = (
        replace(cost, noise=sequential.noise_behind(cost, evidence.alpha))
        for cost in (evidence.time(one, other), evidence.memory(one, other))
    )
    return time, memory


def _rounds_to_show(evidence: Evidence, use: str) -> int | None:
    """After how many rounds `use` is shown to be better than the baseline in something."""
    costs = _costs(evidence, use, evidence.baseline)
    reached = [sequential.rounds_until(c.noise, -math.log(c.ratio), evidence.alpha) for c in costs]
    return min((rounds for rounds in reached if rounds is not None), default=None)


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
