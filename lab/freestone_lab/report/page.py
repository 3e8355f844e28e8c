"""Puts the analysis and the drawings into one HTML page that needs nothing else."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

from freestone_lab.analysis.claims import Table, change
from freestone_lab.core import outputs, theme
from freestone_lab.core.result import Peer, Result
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.report import cells, charts, plots, quantity, series, svg
from freestone_lab.report.card import Card, of_result
from freestone_lab.report.charts import Chart
from freestone_lab.report.overview import Analysis, ExperimentView, Overall, analyse, pair
from freestone_lab.report.plots import Look, Point, Span
from freestone_lab.report.quantity import Role
from freestone_lab.report.verdict import Conclusion, conclude

OWN = "freestone"
ROLE_TITLES: dict[Role, str] = {"speed": "Time", "latency": "Latency", "memory": "Memory", "other": "Other"}
STATUS = {
    "failed": "failed",
    "timeout": "timed out",
    "not_loaded": "was not loaded",
    "wrong_output": "gave wrong output",
}
CPU_TITLE = "CPU time"
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
    looks: dict[str, Look]
    pareto: Markup | None
    outside: str  # the points that the drawing leaves out
    forests: list[tuple[Role, Markup]]
    workloads: list[WorkloadView]
    subject: str
    answer: Card | None
    titles: dict[Role, str]


def titles_of(analysis: Analysis) -> dict[Role, str]:
    """What each role is called where these experiments are compared: CPU time where all of them are judged by it."""
    shown = {f.spec for v in analysis.experiments for f in v.figures if f.role == "speed" and f.headline}
    return {**ROLE_TITLES, "speed": CPU_TITLE} if shown == {PROCESS_SPECS["cpu"]} else ROLE_TITLES


def _within(title: str) -> str:
    """A title inside a sentence."""
    return title if title == CPU_TITLE else title.lower()


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
    baseline, titles = analysis.result.baseline, titles_of(analysis)
    across: Role = "speed" if "speed" in analysis.overall else "latency"
    pareto, outside = None, ""
    if across in analysis.overall and "memory" in analysis.overall:
        xs, ys = (analysis.ranked.get(role, {}) for role in (across, "memory"))
        points = [Point(n, looks[n], xs[n].ratio, ys[n].ratio, span(xs[n]), span(ys[n])) for n in xs if n in ys]
        shown = plots.inside(points) if points else []
        if len(shown) > 1:
            outside = "; ".join(f"{p.name} {p.x:.2f} and {p.y:.2f}" for p in points if p not in shown)
            label = _within(titles[across])
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
        others = {n: s for n, s in scores.items() if n != baseline}
        rows = [Span(n, looks[n], s.ratio, span(s), single_ratios(analysis, role, n)) for n, s in others.items()]
        if rows:
            title = f"{titles[role]} relative to {baseline}"
            axis = f"{_within(titles[role])}, {baseline} = 1; left is better"
            forests.append((role, Markup(plots.forest(rows, axis, title))))
    return pareto, outside, forests


def span(score: Overall) -> tuple[float, float] | None:
    return (score.estimate.low, score.estimate.high) if score.estimate and score.estimate.is_known else None


def single_ratios(analysis: Analysis, role: Role, peer: str) -> list[float]:
    """The ratio of each experiment (the mean of its figures of the role), when there are several."""
    if len(analysis.experiments) < 2:
        return []
    found = []
    for view in analysis.experiments:
        ratio = pair(analysis, role, peer, analysis.result.baseline, [view])[1]
        if ratio is not None:
            found.append(ratio)
    return found


def part_of(result: Result, tables: Sequence[Table] | None = None) -> Part:
    analysis = analyse(result, tables)
    looks = looks_of(analysis.candidates, result.baseline)
    pareto, outside, forests = drawings(analysis, looks)
    over_parameters = charts.sweeps(analysis, looks)
    workloads: dict[str, WorkloadView] = {}
    members = Counter(view.experiment.workload for view in analysis.experiments)
    for view in analysis.experiments:
        name = view.experiment.workload
        entry = workloads.setdefault(name, WorkloadView(name, over_parameters.get(name, []), []))
        own = series.series_charts(view, looks, members[name], len(analysis.experiments))
        entry.experiments.append((view, own + charts.figure_charts(view, looks)))
    return Part(
        analysis,
        conclude(analysis),
        looks,
        pareto,
        outside,
        forests,
        list(workloads.values()),
        subject_of(result),
        of_result(result, analysis) if result.command[1:2] in (["compare"], ["advise"]) else None,
        titles_of(analysis),
    )


def order_of(part: Part) -> list[str]:
    """The allocators of the summary, ranked ones first, by their time (or what else was measured)."""
    scores = next(iter(part.analysis.overall.values()), {})
    failed = part.analysis.failed
    return sorted(part.looks, key=lambda n: (n in failed, n not in scores, scores[n].ratio if n in scores else 0.0, n))


def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        show=quantity.show, change=change, ratio=quantity.ratio, words=quantity.words,
        **{name: getattr(cells, name) for name in ("moment", "flatten", "tone")},
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )  # fmt: skip
    of_cells = (
        "verdict_word", "mini", "null_note", "null_cell", "rows_of", "rest_of", "served_by", "machine", "rounds_words",
        "proof_tag", "sha256", "title_of", "legend",
    )  # fmt: skip
    env.globals.update(
        **{name: getattr(cells, name) for name in of_cells},
        **{name: getattr(quantity, name) for name in ("span", "ratio_within", "show_span")},
        order_of=order_of, Markup=Markup, pick=lambda table, keys: [table[key] for key in keys], status_words=STATUS,
        wide=WIDE_TABLE, round_charts=charts.round_charts,
        join_command=lambda command: shlex.join(str(word) for word in command),
    )  # fmt: skip
    return env


def render_report(
    results: list[Result], tables: Sequence[Sequence[Table]] | None = None
) -> str:  # fmt: skip
    """The page as text; about compare and advise it opens with the card. `tables` are each result's, if known."""
    known: Sequence[Sequence[Table] | None] = tables or [None] * len(results)
    parts = [part_of(result, found) for result, found in zip(results, known, strict=True)]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            parts=parts,
            halo=Markup(svg.HALO),
            light=Markup(theme.variables(False)),
            dark=Markup(theme.variables(True)),
            ways=WAY_TITLES,
        )
    )


def write_report(
    results: list[Result], path: Path, tables: Sequence[Sequence[Table]] | None = None
) -> None:  # fmt: skip
    """Writes one self-contained HTML file for `results` to `path`."""
    text = render_report(results, tables)
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs.write_whole(path, text)
