"""What stands in the cells of a page: verdicts, small drawings, figures and facts in words."""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from markupsafe import Markup

from freestone_lab.analysis import claims
from freestone_lab.analysis.claims import Cell
from freestone_lab.core.result import FigureSpec, Peer, Result
from freestone_lab.report import quantity, series, svg
from freestone_lab.report.charts import Chart
from freestone_lab.report.overview import Analysis, ExperimentView, FigureView, Overall, swept
from freestone_lab.report.plots import Look
from freestone_lab.report.quantity import Role

ROLE_SPECS: dict[Role, FigureSpec] = {"speed": FigureSpec("s"), "latency": FigureSpec("s"), "memory": FigureSpec("KiB")}


def verdict_word(cell: Cell | Overall, role: Role, spec: FigureSpec | None = None) -> str:
    """'faster', 'smaller', ... or '' for the baseline."""
    if cell.verdict is None:
        return ""
    if cell.estimate is None:
        return "one round"
    if not cell.estimate.is_known:
        return "too few rounds"
    return claims.verdict_word(cell.verdict, spec or ROLE_SPECS[role])


def tone(word: str) -> str:
    """The colour class of a verdict."""
    if word in ("faster", "smaller", "better"):
        return "good"
    return "bad" if word in ("slower", "larger", "worse") else "plain"


def mini(cell: Cell | Overall, cells: Iterable[Cell | Overall]) -> Markup:
    """A small drawing of one interval on the scale that all rows of a table share."""
    spans = [bounds(c) for c in cells]
    every = [v for s in spans if s for v in s]
    own = bounds(cell)
    if own is None or not every:
        return Markup("")
    low, high = min([*every, 1.0]), max([*every, 1.0])
    width, pad = 100.0, 5.0
    total = math.log(high / low) or 1.0

    def at(value: float) -> float:
        return round(pad + (width - 2 * pad) * math.log(value / low) / total, 1)

    left, middle, right = at(own[0]), at(own[1]), at(own[2])
    return Markup(
        '<svg class="mini" viewBox="0 0 100 10" aria-hidden="true">'
        f'<line class="one" x1="{at(1)}" x2="{at(1)}" y1="0" y2="10"/>'
        f'<line class="span" x1="{left}" x2="{right}" y1="5" y2="5"/><circle cx="{middle}" cy="5" r="3"/></svg>'
    )


def bounds(cell: Cell | Overall) -> tuple[float, float, float] | None:
    """Lower bound, ratio, upper bound; None where there is no interval."""
    found = cell.estimate
    return (found.low, found.ratio, found.high) if found and found.is_known else None


def null_note(figure: FigureView, baseline: str) -> str:
    """The null allocator's cost beside the figure, in words."""
    if figure.null is None:
        return f"null allocator: none ({figure.null_absent})" if figure.null_absent else ""
    shown = quantity.show(figure.null, figure.spec.unit)
    base = figure.cells.get(baseline)
    own = quantity.cost(figure.null, figure.spec)
    whole = quantity.cost(base.summary.median, figure.spec) if base else None
    if own is None or whole is None or figure.role == "memory":
        return f"null allocator: {shown}"
    if own >= whole:
        return f"null allocator: {shown}; no less than {baseline}, for all its memory is fresh from the kernel"
    return f"null allocator: {shown}; the workload itself is {own / whole * 100:.0f} % of {baseline}'s cost"


def null_cell(figure: FigureView) -> str:
    """The null allocator's cost, or why there is none."""
    if figure.null is not None:
        return quantity.show(figure.null, figure.spec.unit)
    return f"- ({figure.null_absent})" if figure.null_absent else "-"


def title_of(figure: FigureView) -> str:
    """The label that the workload gave, or its name in words."""
    return figure.spec.label or quantity.words(figure.name)


def rows_of(figure: FigureView, names: list[str]) -> list[str]:
    """The allocators that have the figure, best first; without a direction, in the order given."""
    have = [n for n in names if n in figure.cells]
    if figure.spec.better == "neither":
        return have
    return sorted(have, key=lambda n: figure.cells[n].summary.median, reverse=figure.spec.better == "higher")


def rest_of(view: ExperimentView, analysis: Analysis) -> tuple[list[FigureView], int]:
    """The figures below the main ones, and how many are left to the result file.

    In a large result a single point of a sweep has its row only where the sweep is a main figure: a time, a rate, or
    the median of a latency. The drawings and the result file have all of them.
    """
    rest = [f for f in view.figures if not f.shown]
    if len(analysis.experiments) <= series.FEW_EXPERIMENTS:
        return rest, 0
    main = {
        f.name
        for f in view.figures
        if f.headline and (f.role == "speed" or (f.role == "latency" and f.name.endswith("_p50")))
    }
    names = {f.name for f in view.figures}
    shown = [f for f in rest if (whole := swept(f.name, names)) is None or whole in main]
    return shown, len(rest) - len(shown)


def legend(chart: Chart, looks: dict[str, Look]) -> Markup:
    """The allocators of a drawing as chips that carry colour, dash and marker."""
    chips = []
    for name in sorted(chart.peers, key=lambda n: looks[n].slot):
        look = looks[name]
        dash = {0: "", 1: ' stroke-dasharray="5 2"', 2: ' stroke-dasharray="2 2"'}[(look.slot // 7) % 3]
        chips.append(
            Markup(
                '<button type="button" class="chip" data-slot="{slot}"><svg viewBox="0 0 22 8" aria-hidden="true">'
                '<line x1="0" x2="22" y1="4" y2="4" stroke="var(--s{colour})" stroke-width="{width}"{dash}/></svg>'
                "{name}</button>"
            ).format(
                slot=look.slot, colour=look.slot % svg.SLOTS, width=3 if look.bold else 2, dash=Markup(dash), name=name
            )
        )
    return Markup("").join(chips)


def flatten(value: Any) -> str:
    """A fingerprint's value on one line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(flatten(v) for v in value) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{quantity.words(str(k))}: {flatten(v)}" for k, v in value.items()) or "none"
    return "not known" if value in (None, "") else str(value)


def served_by(result: Result, peer: Peer) -> dict[str, Any]:
    """Symbol to the object that served it, as the run's proof recorded it."""
    found = result.fingerprint.get("served", {}).get(peer.name, {})
    return dict(found) if isinstance(found, dict) else {"malloc": found}


def machine(fingerprint: dict[str, Any]) -> str:
    """The machine in half a line: processor, CPUs, kernel, libc, mode of huge pages, as far as they are known."""
    forms = {"cpu": "{}", "cpus": "{} CPUs", "kernel": "kernel {}", "libc": "{}", "thp": "huge pages {}"}
    forms |= {"aged": "heaps aged by seed {}"}
    facts = dict(fingerprint)
    if isinstance(facts.get("cpu"), dict):
        facts["cpu"] = facts["cpu"].get("model name")
    shown = [
        form.format(facts[k]) for k, form in forms.items() if isinstance(facts.get(k), (str, int)) and facts[k] != ""
    ]
    return ", ".join(shown) + ". " if shown else ""


def proof_tag(analysis: Analysis, peer: Peer) -> Markup:
    """Whether the run proved that this library served malloc."""
    if peer.kind == "control" and peer.path is None:
        return Markup("")
    doubted = any(f.peer == peer.name and f.status == "not_loaded" for f in analysis.failures)
    seen = any(s.peer == peer.name for v in analysis.experiments for s in v.experiment.samples)
    if doubted or not seen:
        return Markup('<span class="tag bad">{}</span>').format("not proven" if seen else "not run")
    return Markup('<span class="tag good">proven</span>')


def sha256(result: Result, peer: Peer) -> str:
    found = result.fingerprint.get("libraries", {})
    return str(found.get(peer.name, "")) if isinstance(found, dict) else ""


def rounds_words(analysis: Analysis) -> str:
    low, high = analysis.fewest_rounds, analysis.rounds
    return f"{low} to {high} rounds" if low != high else f"{high} {'round' if high == 1 else 'rounds'}"


def moment(created: str) -> str:
    """2026-11-20T12:00:00Z as 2026-11-20 12:00 UTC; anything else unchanged."""
    try:
        when = datetime.fromisoformat(created)
    except ValueError:
        return created
    zone = "" if when.tzinfo is None else " UTC" if not when.utcoffset() else when.strftime(" %z")
    return when.strftime("%Y-%m-%d %H:%M") + zone
