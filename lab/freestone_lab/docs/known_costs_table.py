"""How often the lab errs, in docs/LAB.md, made from docs/results/known-costs.json."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from freestone_lab.analysis.calibration import STAYING
from freestone_lab.docs.pages import grid, section_from, stored
from freestone_lab.workloads import cost_trials

DOCUMENT = Path("docs/LAB.md")
RESULT = Path("docs/results/known-costs.json")
COMMAND = "freestone bench known-costs"
HEADINGS = ("noise of the runs", "sittings", "verdicts wrong", "open", "answers wrong", "open", "rounds")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "known costs", table)


def _held(coverage: list[dict[str, Any]], staying: bool) -> str:
    """For each kind of interval how often it held the truth under its worst noise; in brackets the worst length."""
    said = []
    for kind in dict.fromkeys(one["kind"] for one in coverage):
        means, lengths = [], []
        own = [c for c in coverage if c["kind"] == kind and c["printed"] and (c["shape"] == STAYING) == staying]
        for shape in dict.fromkeys(one["shape"] for one in own):
            of = [c for c in own if c["shape"] == shape]
            means.append(sum(c["held"] for c in of) / sum(c["printed"] for c in of))
            lengths.append(min(c["held"] / c["printed"] for c in of))
        if own:
            said.append(f"{kind} {100 * min(means):.1f} % ({100 * min(lengths):.1f} %)")
    return ", ".join(said)


def table(path: Path) -> str:
    """The coverage of each kind of interval under its worst noise, and the rates of each command, over all costs."""
    result = stored(path, cost_trials.SCHEMA, COMMAND)
    stay, fall = (_held(result["coverage"], staying) for staying in (True, False))
    costs = list(dict.fromkeys(j["cost"] for j in result["judgements"]))
    words = (
        f"{result['created'][:10]}, {result['machine']}, load {result['load']:.1f}, `{COMMAND}`. Costs: "
        f"{', '.join(costs)}. The truth lies in {fall} of the intervals: the mean over the lengths of sittings, under "
        "the worst of the table's simulated noises, and in brackets the worst length. Where noise stays with an "
        f"allocator, half as wide as a run's and for ten rounds on average, it lies in {stay}: no interval counts it."
    )
    groups = dict.fromkeys((j["command"], j["shape"]) for j in result["judgements"])
    rows = []
    for command, shape in groups:
        own = [j for j in result["judgements"] if (j["command"], j["shape"]) == (command, shape)]
        sittings = sum(j["of"] for j in own)
        shares = []
        for what in ("verdicts", "answers"):
            total: Counter[str] = Counter()
            for judgement in own:
                total.update(judgement[what])
            shares += [f"{100 * total[kind] / sittings:.1f} %" for kind in ("wrong", "open")]
        rounds = sum(j["rounds"] * j["of"] for j in own) / sittings
        rows.append([f"{command}: {shape}", f"{sittings}", *shares, f"{rounds:.0f}"])
    said = textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False)
    return f"{said}\n\n{grid(HEADINGS, rows, '---:')}"
