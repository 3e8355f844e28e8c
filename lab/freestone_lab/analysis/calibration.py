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
from freestone_lab.analysis.decision import Decision, decide, evidence_of, is_finished
from freestone_lab.analysis.sequential import ERROR_RATE, LEAST_ROUNDS, Estimate
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


# By name: the noise of one run, and how far the whole machine drifts from round to round.
SHAPES: dict[str, tuple[Noise, float]] = {
    "normal": (_normal, 0.0),
    "lognormal": (_lognormal, 0.0),
    "one slow run in ten": (_slow_in_ten, 0.0),
    "two states": (_two_states, 0.0),
    "drift": (_normal, 0.05),
}


def runs(shape: str, truths: Sequence[float], rounds: int, source: random.Random) -> list[list[float]]:
    """For each true cost the simulated costs of its runs, round by round beside the others'."""
    noise, drift = SHAPES[shape]
    found: list[list[float]] = [[] for _ in truths]
    machine = 0.0
    for _ in range(rounds):
        machine += source.gauss(0, drift)
        for own, truth in zip(found, truths, strict=True):
            own.append(truth * math.exp(machine + noise(source)))
    return found


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


def experiment_of(cost: Cost, shape: str, rounds: int, source: random.Random) -> Experiment:
    """A simulated sitting: the baseline, its control, an allocator of this cost, and a rival that costs 5 % more."""
    names = (BASELINE, control_name(BASELINE), SHIM, RIVAL)
    cpu = runs(shape, (1.0, 1.0, cost.cpu, 1.05), rounds, source)
    samples = []
    for name, seconds in zip(names, cpu, strict=True):
        for n in range(rounds):
            wall = seconds[n] * math.exp(abs(source.gauss(0, WALL_NOISE * SPREAD)))
            kib = PROGRAM_KIB * math.exp(source.gauss(0, MEMORY_SPREAD)) * (cost.memory if name == SHIM else 1)
            samples.append(Sample(name, n + 1, "ok", figures={"cpu": seconds[n], "wall": wall, "rss": kib}))
    return Experiment("simulated", "simulated", specs=dict(SPECS), samples=samples)


def sitting(
    cost: Cost, shape: str, most: int, source: random.Random, precision: float | None
) -> tuple[Experiment, Decision]:  # fmt: skip
    """Rounds until nothing is left to measure, as the engine's; after `most` it ends open."""
    whole = experiment_of(cost, shape, most, source)
    for rounds in range(LEAST_ROUNDS, most + 1):
        seen = Experiment(whole.id, whole.workload, specs=whole.specs)
        seen.samples = [s for s in whole.samples if s.round <= rounds]
        evidence = evidence_of(seen, BASELINE)
        decision = decide(evidence)
        if is_finished(evidence, decision, precision):
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


# By command: within what each ratio is to be known before it ends.
COMMANDS: dict[str, float | None] = {"compare": inference.SAME, "advise": None}


def judge(cost: Cost, shape: str, command: str, times: int, most: int = 40, seed: int = 1) -> Judgement:
    """Simulates `times` sittings of a command with an allocator of this cost."""
    source = random.Random(f"{seed}/{cost.name}/{shape}/{command}")
    verdicts: Counter[Answer] = Counter()
    answers: Counter[Answer] = Counter()
    taken = 0
    for _ in range(times):
        seen, decision = sitting(cost, shape, most, source, COMMANDS[command])
        taken += max(s.round for s in seen.samples)
        figure = "rss" if cost.memory != 1 else "cpu"
        row = table_of(seen, BASELINE).row(SHIM)
        assert row is not None
        verdicts[verdict_is(cost, row.cells[figure].verdict, figure)] += 1
        answers[answer_is(cost, decision)] += 1
    return Judgement(cost.name, shape, command, times, dict(verdicts), dict(answers), taken / times)
