"""The cost curve in docs/HARDENING.md: a table and a drawing made from docs/results/mitigations.json.gz."""

from __future__ import annotations

from pathlib import Path

from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load
from freestone_lab.docs.pages import grid, render, with_section
from freestone_lab.report.svg import WIDTH, finish, slot_colour, standalone
from freestone_lab.workloads import mitigation_costs

DOCUMENT = Path("docs/HARDENING.md")
RESULT = Path("docs/results/mitigations.json.gz")
PLOT = Path("docs/plots/mitigations-cost.svg")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    if not (root / RESULT).is_file():
        return {}
    result = load(root / RESULT)
    page = (root / DOCUMENT).read_text(encoding="utf-8")
    wanted = mitigation_costs.variants(mitigation_costs.policy_text(root))
    page = with_section(page, DOCUMENT, "mitigations", table(result, wanted))
    return {DOCUMENT: page, PLOT: drawing(result, wanted)}


def table(result: Result, wanted: list[mitigation_costs.Variant]) -> str:
    costs = mitigation_costs.costs(result)
    rows = [[f"`{variant.name}`", *(_cell(c.ratios, variant) for c in costs)] for variant in wanted]
    rows.append(["glibc", *(_ratio(c.ratios.get("glibc")) for c in costs)])
    return render(
        "mitigations.md.j2",
        command=result.command,
        file=RESULT,
        grid=grid(["mitigation", *(c.title for c in costs)], rows, "---:"),
        plot=PLOT.name,
    ).rstrip("\n")


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _cell(ratios: dict[str, float], variant: mitigation_costs.Variant) -> str:
    own, base = ratios.get(variant.name), ratios.get(variant.base)
    if own is None or base is None or variant.base == mitigation_costs.FAST:
        return _ratio(own)
    return f"{own:.2f} ({own - base:+.2f})"


def drawing(result: Result, wanted: list[mitigation_costs.Variant]) -> str:
    """Bars: what each mitigation adds to the fast build's time, or to the trailer's where it needs that."""
    from matplotlib.figure import Figure

    costs = mitigation_costs.costs(result)
    figure = Figure(figsize=(WIDTH, 0.55 * len(wanted) + 0.9))
    axes = figure.add_subplot()
    height = 0.8 / max(len(costs), 1)
    for slot, cost in enumerate(costs):
        added = [cost.ratios.get(v.name, 1.0) - cost.ratios.get(v.base, 1.0) for v in wanted]
        places = [row + slot * height for row in range(len(wanted))]
        axes.barh(places, [100 * a for a in added], height, label=cost.title, color=slot_colour(slot + 1))
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(wanted))], [v.name for v in wanted])
    axes.invert_yaxis()
    axes.set_xlabel("added time, % of the fast build's")
    axes.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    return standalone(finish(figure, "What each mitigation costs")) + "\n"
