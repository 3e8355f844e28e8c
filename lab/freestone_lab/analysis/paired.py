"""The samples of one experiment that count, and the ratio of two peers over the rounds that they share."""

from __future__ import annotations

from freestone_lab.analysis import inference
from freestone_lab.analysis.inference import Estimate
from freestone_lab.core.result import Experiment, Sample


def measured(experiment: Experiment, peer: str) -> list[Sample]:
    """The samples that count: those of measured rounds (1 and later), whatever their status."""
    return [s for s in experiment.samples if s.peer == peer and s.round > 0]


def values(experiment: Experiment, peer: str, figure: str) -> dict[int, float]:
    """The figure of every good run of `peer`, by round."""
    return {
        s.round: s.figures[figure]
        for s in experiment.samples
        if s.peer == peer and s.round > 0 and s.status == "ok" and figure in s.figures
    }


def estimate(experiment: Experiment, peer: str, baseline: str, figure: str, seed: int = 0) -> Estimate | None:
    """The paired ratio of `peer` to `baseline` over the rounds in which both ran well."""
    ours, theirs = values(experiment, peer, figure), values(experiment, baseline, figure)
    rounds = sorted(ours.keys() & theirs.keys())
    return inference.paired_ratio([ours[r] for r in rounds], [theirs[r] for r in rounds], seed)
