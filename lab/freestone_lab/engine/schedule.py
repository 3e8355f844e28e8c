"""How long a sitting of many experiments will take, and how many rounds a budget allows.

A budget cuts rounds. Where it is too short for five rounds of every experiment, whole experiments are left out and
named, never allocators or sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from freestone_lab.core.result import Peer
from freestone_lab.engine.plan import Task

OVERHEAD_S = 0.08  # what starting, watching and reading one process costs
SLOWDOWN = 1.25  # the allocators' mean time over the baseline's, across the suites


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


def total(costs: Sequence[Cost], rounds: int) -> float:
    return sum(c.once + c.round * rounds for c in costs)


def rounds_within(costs: Sequence[Cost], budget_s: float, most: int) -> int:
    """How many rounds of every experiment the budget allows; 0 if not one."""
    each = sum(c.round for c in costs)
    return max(0, min(most, int((budget_s - total(costs, 0)) / each))) if each > 0 else most
