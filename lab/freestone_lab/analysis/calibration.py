"""How often the lab errs, by simulation: in its intervals, and about allocators whose cost is known.

Intervals and answers come from the functions that every table, card and drawing prints. The noise is that of single
runs; both runs of a pair have it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from freestone_lab.analysis import inference, paired, sequential
from freestone_lab.analysis.claims import table_of
from freestone_lab.analysis.decision import Decision, decide, evidence_of, racing
from freestone_lab.analysis.sequential import ERROR_RATE, LEAST_ROUNDS, Estimate, next_look
from freestone_lab.core.result import Experiment, FigureSpec, Sample, control_name

SPREAD = 0.01  # of one run
SLOW = 1.5  # a disturbed run takes so many times as long
TRUTH = 0.9
Noise = Callable[[random.Random], float]


def _normal(source: random.Random) -> float:
    return source.gauss(0, SPREAD)


def _lognormal(source: random.Random) -> float:
    """Most runs are a little slow, a few are very slow."""
    return math.log1p(SPREAD * source.lognormvariate(0, 1))


def _slow_in_ten(source: random.Random) -> float:
    return _normal(source) + (math.log(SLOW) if source.random() < 0.1 else 0)


def _two_states(source: random.Random) -> float:
    """The machine has a fast and a slow state."""
    return source.gauss(0, SPREAD / 4) + (2 * SPREAD if source.random() < 0.3 else 0)


@dataclass(frozen=True)
class Shape:
    """The noise of one run, and of the machine: its drift from round to round, and what others at work add.

    Others begin and end their work between two runs out of ten, so neighbours in a round are mostly alike. `stays` is
    the spread of what stays with an allocator, as places of code and pages do, for ten rounds on average.
    """

    noise: Noise
    drift: float = 0.0
    others: float = 0.0
    stays: float = 0.0


SHAPES = {
    "normal": Shape(_normal),
    "lognormal": Shape(_lognormal),
    "one slow run in ten": Shape(_slow_in_ten),
    "two states": Shape(_two_states),
    "drift": Shape(_normal, drift=0.05),
    "beside load": Shape(lambda source: source.gauss(0, 5 * SPREAD), others=0.15),
}
STAYING = "stays with an allocator"  # no interval allows for it
ALL_SHAPES = {**SHAPES, STAYING: Shape(_normal, stays=SPREAD / 2)}


class Machine:
    """The simulated costs of runs, round by round, each round in another order."""

    def __init__(self, shape: str, source: random.Random) -> None:
        self.shape, self.source = ALL_SHAPES[shape], source
        self.drifted, self.busy = 0.0, False
        self.own: dict[int, float] = {}

    def round(self, truths: Sequence[float]) -> list[float]:
        shape, source = self.shape, self.source
        self.drifted += source.gauss(0, shape.drift)
        found = list(truths)
        for n in source.sample(range(len(found)), len(found)):
            self.busy ^= source.random() < 0.2
            noise = self.drifted + shape.noise(source) + (shape.others if self.busy else 0.0)
            if shape.stays and (n not in self.own or source.random() < 0.1):
                self.own[n] = source.gauss(0, shape.stays)
            found[n] *= math.exp(noise + self.own.get(n, 0.0))
        return found


def runs(shape: str, truths: Sequence[float], rounds: int, source: random.Random) -> list[list[float]]:
    """For each true cost the simulated costs of its runs, round by round beside the others'."""
    machine = Machine(shape, source)
    return [list(own) for own in zip(*(machine.round(truths) for _ in range(rounds)), strict=True)]


@dataclass(frozen=True)
class Coverage:
    """Of `of` simulated sittings, how many intervals were printed, and how many of these held the truth."""

    kind: str
    shape: str
    rounds: int
    of: int
    printed: int
    held: int

    @property
    def rate(self) -> float | None:
        return self.held / self.printed if self.printed else None


def _paired(shape: str, rounds: int, source: random.Random) -> Estimate | None:
    other, baseline = runs(shape, (TRUTH, 1.0), rounds, source)
    return paired.ratio(other, baseline, ERROR_RATE)


def _of_two_sittings(shape: str, rounds: int, source: random.Random) -> Estimate | None:
    """What `diff` prints: two sittings, each with its own drift, compared through their baselines."""
    sittings = [runs(shape, (truth, 1.0), rounds, source) for truth in (1.0, TRUTH)]
    before, after = ([a / b for a, b in zip(*sitting, strict=True)] for sitting in sittings)
    return inference.unpaired_ratio(after, before, ERROR_RATE)


def _over_workloads(shape: str, rounds: int, source: random.Random) -> Estimate | None:
    """What an overview prints: each pair is another workload."""
    other, baseline = runs(shape, (TRUTH, 1.0), rounds, source)
    return sequential.middle([math.log(a / b) for a, b in zip(other, baseline, strict=True)], ERROR_RATE)


KINDS = {"paired": _paired, "of two sittings": _of_two_sittings, "over workloads": _over_workloads}


def coverage(kind: str, shape: str, rounds: int, times: int, seed: int = 1) -> Coverage:
    """Simulates `times` sittings of one shape and length."""
    source = random.Random(f"{seed}/{kind}/{shape}/{rounds}")
    found = [KINDS[kind](shape, rounds, source) for _ in range(times)]
    printed = [e for e in found if e is not None and e.is_known]
    return Coverage(kind, shape, rounds, times, len(printed), sum(e.low <= TRUTH <= e.high for e in printed))


def coverage_at_any_look(shape: str, rounds: int, times: int, seed: int = 1) -> Coverage:
    """The same of sittings that are looked at after every round: the interval holds if it does at each look."""
    source = random.Random(f"{seed}/{shape}")
    held = 0
    for _ in range(times):
        other, baseline = runs(shape, (TRUTH, 1.0), rounds, source)
        looks = [paired.ratio(other[:n], baseline[:n], ERROR_RATE) for n in range(2, rounds + 1)]
        held += all(e.low <= TRUTH <= e.high for e in looks if e is not None)
    return Coverage("at every look", shape, rounds, times, times, held)


BASELINE, SHIM, RIVAL = "glibc", "shim", "rival"
SPECS = {"cpu": FigureSpec("s"), "wall": FigureSpec("s"), "rss": FigureSpec("KiB")}
WALL_NOISE = 3.0  # times as noisy as CPU time
MEMORY_SPREAD = 0.002
PROGRAM_KIB = 100_000.0
Answer = Literal["right", "wrong", "open"]


@dataclass(frozen=True)
class Cost:
    """What an allocator costs, relative to the baseline."""

    cpu: float = 1.0
    memory: float = 1.0

    @property
    def name(self) -> str:
        parts = [f"{(x - 1) * 100:+.3g} % {what}" for x, what in ((self.cpu, "CPU"), (self.memory, "memory")) if x != 1]
        return ", ".join(parts) or "nothing"


COSTS = (
    Cost(), Cost(1.005), Cost(1.01), Cost(1.03), Cost(1.1), Cost(memory=1.05), Cost(memory=1.2), Cost(0.97), Cost(0.9),
    Cost(memory=0.8),
)  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """How often the verdict of the tables and the answer of the card were right, wrong or open."""

    cost: str
    shape: str
    command: str
    of: int
    verdicts: dict[Answer, int]
    answers: dict[Answer, int]
    rounds: float  # on average


def sitting(cost: Cost, shape: str, most: int, source: random.Random) -> tuple[Experiment, Decision]:
    """Rounds as the engine holds them, of whoever is still in the race; after `most` it ends open.

    The baseline, its control, an allocator of this cost, and a rival that costs 5 % more.
    """
    truths = {BASELINE: 1.0, control_name(BASELINE): 1.0, SHIM: cost.cpu, RIVAL: 1.05}
    seen = Experiment("simulated", "simulated", specs=dict(SPECS))
    machine, active, look_at = Machine(shape, source), set(truths), LEAST_ROUNDS
    for number in range(1, most + 1):
        ran = [name for name in truths if name == BASELINE or name in active]
        for name, cpu in zip(ran, machine.round([truths[name] for name in ran]), strict=True):
            wall = cpu * math.exp(abs(source.gauss(0, WALL_NOISE * SPREAD)))
            kib = PROGRAM_KIB * math.exp(source.gauss(0, MEMORY_SPREAD)) * (cost.memory if name == SHIM else 1)
            seen.samples.append(Sample(name, number, "ok", figures={"cpu": cpu, "wall": wall, "rss": kib}))
        if number < look_at and number < most:
            continue
        look_at = next_look(number)
        evidence = evidence_of(seen, BASELINE, [control_name(BASELINE)])
        decision = decide(evidence)
        active = racing(evidence, decision, inference.SAME)
        if not active:
            break
    return seen, decision


def verdict_is(cost: Cost, verdict: inference.Verdict, figure: str) -> Answer:
    """Whether a table's verdict is right. "Same" means within 3 %; a claim needs the side of the truth."""
    truth = cost.cpu if figure == "cpu" else cost.memory
    if verdict == "inconclusive":
        return "open"
    if verdict == "same":
        return "right" if 1 / (1 + inference.SAME) <= truth <= 1 + inference.SAME else "wrong"
    return "right" if truth != 1 and (truth < 1) == (verdict == "better") else "wrong"


def answer_is(cost: Cost, decision: Decision) -> Answer:
    """Whether a card's answer is right: the allocator only if it costs less, the baseline if less by at most 3 %."""
    if decision.unknown:
        return "open"
    least = min(cost.cpu, cost.memory)
    if decision.use == SHIM:
        return "right" if least < 1 and cost.cpu <= 1 + inference.SAME else "wrong"
    return "right" if decision.use == BASELINE and least * (1 + inference.SAME) >= 1 - 1e-9 else "wrong"


# By command: the rounds that its budget holds for a program of 80 ms.
COMMANDS = {"compare": 60, "advise": 120}


def judge(cost: Cost, shape: str, command: str, times: int, seed: int = 1) -> Judgement:
    """Simulates `times` sittings of a command with an allocator of this cost."""
    source = random.Random(f"{seed}/{cost.name}/{shape}/{command}")
    found = Judged(cost)
    for _ in range(times):
        seen, decision = sitting(cost, shape, COMMANDS[command], source)
        found.add(seen, decision)
    return found.judgement(shape, command)


class Judged:
    """Counts how the tables and the cards of sittings with an allocator of this cost were."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.verdicts: Counter[Answer] = Counter()
        self.answers: Counter[Answer] = Counter()
        self.rounds = 0

    def add(self, seen: Experiment, decision: Decision) -> None:
        figure = "rss" if self.cost.memory != 1 else "cpu"
        row = table_of(seen, BASELINE).row(SHIM)
        verdict = row.cells[figure].verdict if row is not None and figure in row.cells else "inconclusive"
        self.verdicts[verdict_is(self.cost, verdict, figure)] += 1
        self.answers[answer_is(self.cost, decision)] += 1
        self.rounds += max(s.round for s in seen.samples)

    def judgement(self, shape: str, command: str) -> Judgement:
        times = self.answers.total()
        return Judgement(
            self.cost.name, shape, command, times, dict(self.verdicts), dict(self.answers), self.rounds / times
        )
