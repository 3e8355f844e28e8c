"""How often the lab errs, in docs/LAB.md, made from docs/results/known-costs.json."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path

from freestone_lab.docs.pages import grid, section_from, stored
from freestone_lab.workloads import cost_trials

DOCUMENT = Path("docs/LAB.md")
RESULT = Path("docs/results/known-costs.json")
COMMAND = "freestone bench known-costs"
HEADINGS = ("noise of the runs", "sittings", "verdicts wrong", "open", "answers wrong", "open", "rounds")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "known costs", table)


def table(path: Path) -> str:
    """The coverage of each kind of interval under its worst noise, and the rates of each command, over all costs."""
    result = stored(path, cost_trials.SCHEMA, COMMAND)
    counted: dict[tuple[str, str], list[int]] = {}
    for one in result["coverage"]:
        of = counted.setdefault((one["kind"], one["shape"]), [0, 0])
        of[0], of[1] = of[0] + one["held"], of[1] + one["printed"]
    worst: dict[str, float] = {}
    for (kind, _), (held_of, printed) in counted.items():
        worst[kind] = min(worst.get(kind, 1.0), held_of / printed)
    held = ", ".join(f"{100 * rate:.1f} % ({kind})" for kind, rate in worst.items())
    costs = list(dict.fromkeys(j["cost"] for j in result["judgements"]))
    words = (
        f"{result['created'][:10]}, {result['machine']}, load {result['load']:.1f}, `{COMMAND}`. Costs: "
        f"{', '.join(costs)}. Of the intervals, whatever the noise, there hold the truth at least {held}."
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
