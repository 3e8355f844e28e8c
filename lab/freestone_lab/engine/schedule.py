"""How many rounds each experiment of a long sitting gets, and how long that will take.

A budget cuts rounds, never experiments or their sizes. Rounds are handed out level by level. Everybody gets one, then
the cheapest get their second, and nobody gets a third before everybody has two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from freestone_lab.core.result import Peer
from freestone_lab.engine.plan import Task

OVERHEAD_S = 0.08  # what starting, watching and reading one process costs
SLOWDOWN = 1.25  # the allocators' mean time over the baseline's, across the suites
MOST_ROUNDS = 10


@dataclass(frozen=True)
class Cost:
    """What one experiment costs in seconds: once, and for every round."""

    once: float
    round: float


def cost(task: Task, peers: Sequence[Peer], control_share: float = 1.0) -> Cost:
    """Estimates the cost. The baseline runs twice a round. A workload program warms up with one run of it."""
    run = task.seconds * SLOWDOWN + OVERHEAD_S
    controls = sum(p.kind == "control" and p.name not in task.unfit for p in peers)
    judged = sum(p.kind != "control" for p in peers)
    warm_up = 1 if task.read == "workload" else judged + 1 + controls
    return Cost(once=warm_up * run, round=(judged + 1 + controls * control_share) * run)


def allot(costs: Sequence[Cost], budget_s: float, most: int = MOST_ROUNDS) -> list[int]:
    """Rounds per experiment. Each gets at least one, even if the budget is too small for that."""
    rounds = [1] * len(costs)
    left = budget_s - sum(c.once + c.round for c in costs)
    order = sorted(range(len(costs)), key=lambda i: costs[i].round)
    for level in range(2, most + 1):
        for i in order:
            if costs[i].round > left:
                return rounds
            rounds[i] = level
            left -= costs[i].round
    return rounds


def total(costs: Sequence[Cost], rounds: Sequence[int]) -> float:
    return sum(c.once + c.round * r for c, r in zip(costs, rounds, strict=True))


class Pace:
    """How the sitting's true time compares with the estimates, judged by what is done."""

    LEAST_S = 20.0  # before that, a single odd experiment would decide

    def __init__(self) -> None:
        self.expected = 0.0
        self.spent = 0.0

    def add(self, expected: float, spent: float) -> None:
        self.expected += expected
        self.spent += spent

    def factor(self) -> float:
        return self.spent / self.expected if self.expected >= self.LEAST_S else 1.0


def rounds_words(rounds: Sequence[int]) -> str:
    """`3 rounds of 60 and 2 of 38 experiments`."""
    counts = {r: rounds.count(r) for r in sorted(set(rounds), reverse=True)}
    parts = [
        f"{r}{(' round' if r == 1 else ' rounds') if i == 0 else ''} of {n}" for i, (r, n) in enumerate(counts.items())
    ]
    return " and ".join(parts) + (" experiments" if len(rounds) != 1 else " experiment")
