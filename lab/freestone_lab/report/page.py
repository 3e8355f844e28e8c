"""Puts the analysis, the drawings and the scorecard into one HTML page that needs nothing else."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from freestone_lab.analysis import claims
from freestone_lab.analysis.claims import Cell, Table
from freestone_lab.core.result import FigureSpec, Peer, Result
from freestone_lab.report import charts, plots, quantity, svg
from freestone_lab.report.card import Card, of_result
from freestone_lab.report.charts import Chart
from freestone_lab.report.composite import Composite, composite_table
from freestone_lab.report.overview import Analysis, ExperimentView, FigureView, Overall, analyse, pair, swept
from freestone_lab.report.plots import Look, Point, Span
from freestone_lab.report.quantity import Role
from freestone_lab.report.scorecard import TITLES, Scorecard, check_weights, facts, scorecard
from freestone_lab.report.verdict import Conclusion, conclude

OWN = "freestone"
ROLE_TITLES: dict[Role, str] = {"speed": "Time", "latency": "Latency", "memory": "Memory", "other": "Other"}
ROLE_SPECS: dict[Role, FigureSpec] = {"speed": FigureSpec("s"), "latency": FigureSpec("s"), "memory": FigureSpec("KiB")}
STATUS = {
    "failed": "failed",
    "timeout": "timed out",
    "not_loaded": "was not loaded",
    "wrong_output": "gave wrong output",
}
WAY_TITLES = {
    "preload": "In a shell",
    "systemd": "A systemd service",
    "docker": "A Dockerfile",
    "link": "The linker's command line",
}
FEW_JOBS = 6  # are named one by one
WIDE_TABLE = 6  # an experiment with more figures than this is shown as one matrix


@dataclass(frozen=True)
class WorkloadView:
    name: str
    charts: list[Chart]
    experiments: list[tuple[ExperimentView, list[Chart]]]


@dataclass(frozen=True)
class Part:
    """One result file, ready for the template."""

    analysis: Analysis
    verdict: Conclusion
    card: Scorecard
    looks: dict[str, Look]
    pareto: Markup | None
    outside: str  # the points that the drawing leaves out
    forests: list[tuple[Role, Markup]]
    workloads: list[WorkloadView]
    composites: list[Composite]
    subject: str
    answer: Card | None

    @property
    def names_winner(self) -> bool:
        """Whether the scorecard may: not where the headline names nobody, and not beside the card of one program."""
        return self.answer is None and not self.verdict.sentence.startswith(("No verdict", "No difference"))


def looks_of(peers: Iterable[Peer], baseline: str) -> dict[str, Look]:
    """A stable appearance per allocator: the baseline grey, our own first colour, the rest in order."""
    looks = {}
    names = [p.name for p in peers if p.name != baseline]
    own = [n for n in names if n.startswith(OWN)]
    for slot, name in enumerate(own + [n for n in names if n not in own], start=1):
        looks[name] = Look(slot, name == OWN)
    return {**looks, baseline: Look(0)}


def subject_of(result: Result) -> str:
    """What was compared, as a heading."""
    commands = [e.params["command"] for e in result.experiments if e.params.get("command")]
    programs = {shlex.join(c) if isinstance(c, list) else str(c) for c in commands}
    if len(programs) == 1:
        return programs.pop()
    if "--" in result.command:
        return shlex.join(result.command[result.command.index("--") + 1 :])
    names = list(dict.fromkeys(e.workload for e in result.experiments))
    if len(names) <= 3:
        return ", ".join(names) or "no experiment"
    if len(result.experiments) <= FEW_JOBS:
        return ", ".join(e.id for e in result.experiments)
    return f"{len(names)} workloads, {len(result.experiments)} experiments"


def drawings(analysis: Analysis, looks: dict[str, Look]) -> tuple[Markup | None, str, list[tuple[Role, Markup]]]:
    """The Pareto plot (where time and memory were both measured) and a forest plot for every role."""
    baseline = analysis.result.baseline
    across: Role = "speed" if "speed" in analysis.overall else "latency"
    pareto, outside = None, ""
    if across in analysis.overall and "memory" in analysis.overall:
        xs, ys = analysis.ranked[across], analysis.ranked["memory"]
        points = [Point(n, looks[n], xs[n].ratio, ys[n].ratio, span(xs[n]), span(ys[n])) for n in xs if n in ys]
        shown = plots.inside(points)
        if len(shown) > 1:
            outside = "; ".join(f"{p.name} {p.x:.2f} and {p.y:.2f}" for p in points if p not in shown)
            label = ROLE_TITLES[across].lower()
            pareto = Markup(
                plots.pareto(
                    shown,
                    f"{label}, {baseline} = 1; left is better",
                    f"memory, {baseline} = 1; lower is better",
                    f"{label} against memory",
                )
            )
    forests = []
    for role, scores in analysis.overall.items():
        rows = [
            Span(n, looks[n], s.ratio, span(s), single_ratios(analysis, role, n))
            for n, s in scores.items()
            if n != baseline
        ]
        if rows:
            title = f"{ROLE_TITLES[role]} relative to {baseline}"
            forests.append(
                (
                    role,
                    Markup(plots.forest(rows, f"{ROLE_TITLES[role].lower()}, {baseline} = 1; left is better", title)),
                )
            )
    return pareto, outside, forests


def span(score: Overall) -> tuple[float, float] | None:
    return (score.estimate.low, score.estimate.high) if score.estimate else None


def single_ratios(analysis: Analysis, role: Role, peer: str) -> list[float]:
    """The ratio of each experiment (the mean of its figures of the role), when there are several."""
    if len(analysis.experiments) < 2:
        return []
    found = []
    for view in analysis.experiments:
        ratio = pair([view], role, peer, analysis.result.baseline, analysis.result.seed)[1]
        if ratio is not None:
            found.append(ratio)
    return found


def part_of(
    result: Result,
    weights: dict[str, float] | None,
    card: Card | None = None,
    tables: Sequence[Table] | None = None,
) -> Part:
    analysis = analyse(result, tables)
    looks = looks_of(analysis.candidates, result.baseline)
    pareto, outside, forests = drawings(analysis, looks)
    over_parameters = charts.sweeps(analysis, looks)
    workloads: dict[str, WorkloadView] = {}
    members = Counter(view.experiment.workload for view in analysis.experiments)
    for view in analysis.experiments:
        name = view.experiment.workload
        entry = workloads.setdefault(name, WorkloadView(name, over_parameters.get(name, []), []))
        own = charts.series_charts(view, looks, members[name], len(analysis.experiments)) + charts.figure_charts(
            view, looks
        )
        entry.experiments.append((view, own))
    return Part(
        analysis,
        conclude(analysis),
        scorecard(analysis, weights),
        looks,
        pareto,
        outside,
        forests,
        list(workloads.values()),
        [c for v in analysis.experiments if (c := composite_table(v, result.baseline)) is not None],
        subject_of(result),
        card or (of_result(result) if "compare" in result.command[:2] else None),
    )


def verdict_word(cell: Cell | Overall, role: Role, spec: FigureSpec | None = None) -> str:
    """'faster', 'smaller', ... or '' for the baseline."""
    if cell.verdict is None:
        return ""
    if cell.estimate is None:
        return "one round"
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
    return (found.low, found.ratio, found.high) if found else None


def null_note(figure: FigureView, baseline: str) -> str:
    """The null allocator's cost beside the figure, in words."""
    if figure.null is None:
        return f"null allocator: none ({figure.null_absent})" if figure.null_absent else ""
    shown = quantity.show(figure.null, figure.spec.unit)
    base = figure.cells.get(baseline)
    own, whole = (
        quantity.cost(figure.null, figure.spec),
        quantity.cost(base.summary.median, figure.spec) if base else None,
    )
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
    rest = [f for f in view.figures if not f.headline]
    if len(analysis.experiments) <= charts.FEW_EXPERIMENTS:
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
                slot=look.slot,
                colour=look.slot % svg.SLOTS,
                width=3 if look.bold else 2,
                dash=Markup(dash),
                name=name,
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


def order_of(part: Part) -> list[str]:
    """The allocators of the summary, ranked ones first, by their time (or what else was measured)."""
    scores = next(iter(part.analysis.overall.values()), {})
    failed = part.analysis.failed
    return sorted(part.looks, key=lambda n: (n in failed, n not in scores, scores[n].ratio if n in scores else 0.0, n))


def served_by(result: Result, peer: Peer) -> dict[str, Any]:
    """Symbol to the object that served it, as the run's proof recorded it."""
    found = result.fingerprint.get("served", {}).get(peer.name, {})
    return dict(found) if isinstance(found, dict) else {"malloc": found}


def machine(fingerprint: dict[str, Any]) -> str:
    """The machine in half a line: processor, CPUs, kernel, as far as they are known."""
    forms = {"cpu": "{}", "cpus": "{} CPUs", "kernel": "kernel {}", "libc": "{}"}
    facts = dict(fingerprint)
    if isinstance(facts.get("cpu"), dict):
        facts["cpu"] = facts["cpu"].get("model name")
    shown = [form.format(facts[k]) for k, form in forms.items() if isinstance(facts.get(k), (str, int))]
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


def score_data(card: Scorecard) -> str:
    """What the page's sliders need, as JSON that is safe inside a script element."""
    data = {
        "criteria": card.criteria,
        "titles": {c: TITLES[c] for c in card.criteria},
        "weights": {c: card.weights[c] for c in card.criteria},
        "rows": {n: {c: round(s.points, 4) for c, s in row.items()} for n, row in card.rows.items()},
    }
    return json.dumps(data).replace("</", "<\\/")


def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        show=quantity.show,
        ratio=quantity.ratio,
        moment=moment,
        words=quantity.words,
        flatten=flatten,
        tone=tone,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    env.globals.update(
        verdict_word=verdict_word,
        mini=mini,
        null_note=null_note,
        null_cell=null_cell,
        rows_of=rows_of,
        rest_of=rest_of,
        order_of=order_of,
        served_by=served_by,
        machine=machine,
        span=quantity.span,
        rounds_words=rounds_words,
        proof_tag=proof_tag,
        sha256=sha256,
        show_span=quantity.show_span,
        title_of=title_of,
        legend=legend,
        score_data=lambda card: Markup(score_data(card)),
        Markup=Markup,
        pick=lambda table, keys: [table[key] for key in keys],
        titles=TITLES,
        role_titles=ROLE_TITLES,
        status_words=STATUS,
        wide=WIDE_TABLE,
        join_command=lambda command: shlex.join(str(word) for word in command),
    )
    return env


def render_report(
    results: list[Result],
    weights: dict[str, float] | None = None,
    card: Card | None = None,
    tables: Sequence[Sequence[Table]] | None = None,
) -> str:
    """The page as text; it opens with `card` when there is one. Raises UserError for weights that make no sense.

    `tables` are those of each result, where the caller has them.
    """
    check_weights(weights)
    known: Sequence[Sequence[Table] | None] = tables or [None] * len(results)
    parts = [part_of(result, weights, card, found) for result, found in zip(results, known, strict=True)]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            parts=parts,
            advised=card is not None,
            halo=Markup(svg.HALO),
            light=Markup(svg.variables(False)),
            dark=Markup(svg.variables(True)),
            facts=facts(),
            ways=WAY_TITLES,
        )
    )


def write_report(
    results: list[Result],
    path: Path,
    weights: dict[str, float] | None = None,
    card: Card | None = None,
    tables: Sequence[Sequence[Table]] | None = None,
) -> None:
    """Writes one self-contained HTML file for `results` to `path`."""
    text = render_report(results, weights, card, tables)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
