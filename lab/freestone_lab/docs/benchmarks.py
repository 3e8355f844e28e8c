"""docs/BENCHMARKS.md and the drawings of docs/plots, made only from the result files in docs/results.

The same results give the same bytes. `outdated` tells what the repository's copy lacks, so a test can check it.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freestone_lab.analysis import inference
from freestone_lab.analysis.claims import verdict_word
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import FigureSpec, Peer, Result, control_name
from freestone_lab.core.result_file import load
from freestone_lab.docs import ages, distance_table, pages, tables, trace_results
from freestone_lab.docs.pages import cell_text, grid, with_section, wrapped
from freestone_lab.report import cells, quantity
from freestone_lab.report import page as render
from freestone_lab.report.charts import Chart
from freestone_lab.report.overview import Analysis, ExperimentView, FigureView, Overall, pair
from freestone_lab.report.page import Part, WorkloadView
from freestone_lab.report.quantity import Role
from freestone_lab.report.series import MEMORY_CURVE
from freestone_lab.report.svg import standalone
from freestone_lab.workloads import suites

DOCUMENT = Path("docs/BENCHMARKS.md")
README = Path("README.md")
README_RESULT = "full"
PROGRAM = "app/"  # begins the name of a real program's experiment
RESULTS = Path("docs/results")
PLOTS = Path("docs/plots")
# Not shown as the others are.
ELSEWHERE = {trace_results.NAME, *(table.result.name.partition(".")[0] for table in tables.TABLES)}
# The drawings that decide, in their order; a workload's is the first of its charts. All others are on the report page.
OVERVIEWS = ("pareto", "speed", "latency", "memory")
TIMES: tuple[Role, ...] = ("speed", "latency", "other")
MEMORY: tuple[Role, ...] = ("memory",)
OURS = "freestone"
SYNTHETIC = "synthetic workloads"
HEADLINE: dict[Role, str] = {"speed": "in time", "memory": "in memory"}
WORKLOADS_DRAWN = ("lifetimes", "micro", "cross", "larson", "burst", "rss")

ARTICLES = (
    "Article 0 surveys five allocators; 1 presents alloc-test; 2 compares hakozuna; 3 is compatmalloc's report; "
    "4 is FancyAllocator's."
)


@dataclass(frozen=True)
class Stored:
    name: str
    path: Path  # below the repository
    part: Part


def stored_results(root: Path) -> list[Stored]:
    """Every stored result, analysed, by name. Raises UserError when there is none."""
    files = sorted((root / RESULTS).glob("*.json.gz")) + sorted((root / RESULTS).glob("*.json"))
    if not files:
        raise UserError(
            f"{root / RESULTS}: holds no result file; put one there that `freestone bench` wrote, as NAME.json.gz"
        )
    named = {f.name.split(".")[0]: f for f in files}
    shown = {name: file for name, file in named.items() if name not in ELSEWHERE}
    return [Stored(name, file.relative_to(root), render.part_of(load(file))) for name, file in shown.items()]


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content."""
    found: dict[Path, str] = {}
    sections = []
    for stored in stored_results(root):
        plots = drawings(stored)
        found.update({PLOTS / name: text for name, (_, text) in plots.items()})
        of = ages.note(root, stored.path)
        sections.append({**section(stored, {name: title for name, (title, _) in plots.items()}), "of": of})
        if stored.name == README_RESULT and (root / README).is_file():
            page = (root / README).read_text(encoding="utf-8")
            analysis = stored.part.analysis
            said = f"{wrapped(headline_of(analysis))}\n\n{by_kind(analysis)}\n\n{of}"
            found[README] = with_section(page, README, "overall", said)
    file = RESULTS / f"{trace_results.NAME}.json.gz"
    traces = trace_results.section(load(root / file)) if (root / file).is_file() else None
    if traces is not None:
        traces["of"] = ages.note(root, file)
    found[DOCUMENT] = pages.render("benchmarks.md.j2", sections=sections, articles=ARTICLES, traces=traces)
    return found


def by_kind(analysis: Analysis) -> str:
    """The geometric means over real programs, some of them, and synthetic workloads, with a row per allocator."""
    programs = programs_of(analysis)
    base = analysis.result.baseline
    kinds = {
        "real programs": programs,
        "with their own heap on": [v for v in programs if not heap_off(v)],
        "with 5 to 40 MiB": [v for v in programs if _has_small_heap(v, base)],
        SYNTHETIC: [v for v in analysis.experiments if v not in programs],
    }
    roles: dict[str, Role] = {"time": "speed", "memory": "memory"}
    found = {
        (kind, what): {p.name: _claimed(analysis, role, p.name, views) for p in analysis.candidates if p.name != base}
        for kind, views in kinds.items()
        if views
        for what, role in roles.items()
    }
    first = next(iter(found.values()))
    names = sorted(first, key=lambda n: e.ratio if (e := first[n][0]) is not None else math.inf)
    heads = [f"{_counted(kind, kinds[kind], roles[what])}: {what}" for kind, what in found]
    rows = []
    for name in names:
        cells_of = [of[name] for of in found.values()]
        rows.append([name, *(marked(quantity.ratio_and_span(e), word) if e else "-" for e, word in cells_of)])
    return grid([f"to {base}", *heads], rows)


def programs_of(analysis: Analysis) -> list[ExperimentView]:
    return [v for v in analysis.experiments if v.experiment.id.startswith(PROGRAM)]


def heap_off(view: ExperimentView) -> str:
    """How the program's language was told to use malloc instead of its own heap; "" where it was not."""
    found = next((re.match(r"run with (\w+=\w+):", caveat) for caveat in view.experiment.caveats), None)
    return found[1] if found else ""


def headline_of(analysis: Analysis) -> str:
    """What OURS costs over the real programs, and beside whom."""
    programs = programs_of(analysis)
    off = {view.experiment.id.removeprefix(PROGRAM): how for view in programs if (how := heap_off(view))}
    whole, without = ([_claimed(analysis, role, OURS, views)[0] for role in HEADLINE]
                      for views in (programs, [v for v in programs if not heap_off(v)]))  # fmt: skip
    if None in whole or None in without:
        return ""
    changes = [[quantity.percent_change(e.ratio) for e in found if e] for found in (whole, without)]
    others = [p.name for p in analysis.candidates if p.name not in (OURS, analysis.result.baseline)]
    beside = []
    for role, what in HEADLINE.items():
        words = {o: _claimed(analysis, role, OURS, programs, o)[1] for o in others}
        for word, said in (("faster", "less than"), ("inconclusive", "not told apart from"), ("same", "level with"),
                           ("slower", "more than")):  # fmt: skip
            if named := [o for o in others if words[o] == word]:
                beside.append(f"{what} {said} {'all others' if len(named) == len(others) else ', '.join(named)}")
    return (
        f"Over {len(programs)} real programs {OURS} takes {changes[0][0]} CPU time than {analysis.result.baseline} and "
        f"{changes[0][1]} memory; without {', '.join(f'{name} ({how})' for name, how in off.items())}, whose language "
        f"has its own heap off, {changes[1][0]} and {changes[1][1]}. Compared directly: {'; '.join(beside)}."
    )


def _counted(kind: str, views: list[ExperimentView], role: Role) -> str:
    workloads = [v.experiment.workload for v in views if any(f.role == role and f.headline for f in v.figures)]
    return f"{len(workloads)} {f'rows of {len(set(workloads))} ' if kind == SYNTHETIC else ''}{kind}"


def _has_small_heap(view: ExperimentView, baseline: str) -> bool:
    peak = next((f.cells[baseline].summary.median for f in view.figures if f.name == "rss" and baseline in f.cells), 0)
    return 5 * 1024 <= peak <= 40 * 1024  # KiB


def _claimed(
    analysis: Analysis, role: Role, name: str, views: list[ExperimentView], to: str = ""
) -> tuple[Estimate | None, str]:
    """The ratio to the baseline, or to another, over some of the experiments, and what it lets us say."""
    base = analysis.result.baseline
    again = control_name(base)
    found = pair(analysis, role, name, to or base, views)[0]
    floor = inference.noise_floor(pair(analysis, role, again, base, views)[0])
    second = (lambda: None) if to else (lambda: pair(analysis, role, name, again, views)[0])
    return found, verdict_word(inference.verdict(found, floor, "lower", second), FigureSpec("s"))


def drawings(stored: Stored) -> dict[str, tuple[str, str]]:
    """File name to title and SVG: the overview, and the first curves of each workload."""
    found: dict[str, tuple[str, str]] = {}

    def add(name: str, title: str, svg: str) -> None:
        found[f"{stored.name}-{name}.svg"] = (title, standalone(svg))

    if stored.part.pareto:
        add("pareto", "Speed against memory", str(stored.part.pareto))
    for role, svg in stored.part.forests:
        add(role, f"{render.ROLE_TITLES[role]} relative to {stored.part.analysis.result.baseline}", str(svg))
    for workload in stored.part.workloads:
        if workload.name in WORKLOADS_DRAWN and (charts := charts_of(workload)):
            add(slug(workload.name), f"{quantity.words(workload.name)}: {charts[0].title}", charts[0].draw(True))
    return found


def charts_of(workload: WorkloadView) -> list[Chart]:
    """A workload's curves over a parameter; without one, those of its experiments, memory over time last."""
    own = [chart for _, charts in workload.experiments for chart in charts]
    return workload.charts or sorted(own, key=lambda chart: chart.title == MEMORY_CURVE)


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40]


def section(stored: Stored, plots: dict[str, str]) -> dict[str, Any]:
    """Everything about one result file, for the template."""
    part = stored.part
    analysis = part.analysis
    result = analysis.result
    wanted = [f"{stored.name}-{n}.svg" for n in (*OVERVIEWS, *map(slug, WORKLOADS_DRAWN))]
    return {
        "name": stored.name,
        "part": part,
        "result": result,
        "about": f"{cells.moment(result.created)}. {cells.machine(result.fingerprint)}"
        f"{len(analysis.experiments)} experiments, {cells.rounds_words(analysis)}.",
        "overview": "\n".join(overview(part)),
        "published": published(result),
        "distance": distance_table.section(analysis),
        "pictures": [(name, plots[name]) for name in wanted if name in plots],
        "every_row": every_row(part),
        "failures": failures(analysis),
        "allocators": [told(peer) for peer in result.peers if peer.kind != "control"],
    }


def failures(analysis: Analysis) -> str:
    """Who failed where, and how; "" when nobody did."""
    return "; ".join(
        f"{f.peer} in {f.experiment} ({render.STATUS.get(f.status, f.status)} in {f.times} of {f.of} runs"
        f"{': ' + cell_text(f.detail) if f.detail else ''})"
        for f in analysis.failures
    )


def published(result: Result) -> str:
    """A table of the experiments of a result and the published ones that they repeat; "" if there are none."""
    present = {e.id for e in result.experiments}
    rows: dict[str, list[str]] = {}
    for run in suites.suite("published"):
        article, _, what = run.shows.partition(": ")
        if run.id in present and article.startswith("article "):
            rows.setdefault(article.removeprefix("article "), []).append(f"`{run.id}` {what}")
    programs = [f"`app/{name}`" for name in suites.PUBLISHED_APPS if f"app/{name}" in present]
    if not rows:
        return ""
    cells = [[article, cell_text("; ".join(shown))] for article, shown in rows.items()]
    if programs:
        cells.append(["2, 3", f"real programs: {', '.join(programs)}"])
    return grid(["article", "experiments"], cells)


def marked(text: str, word: str) -> str:
    tone = cells.tone(word)
    return f"**{text}**" if tone == "good" else f"*{text}*" if tone == "bad" else text


def overview(part: Part) -> list[str]:
    """The lines of the table of overall ratios."""
    roles = list(part.analysis.overall)
    rows = []
    for name in render.order_of(part):
        scores = [(role, part.analysis.overall[role].get(name)) for role in roles]
        failed = name in part.analysis.failed
        rows.append([name, *(overall_cell(score, role, failed) if score else "-" for role, score in scores)])
    return grid(["allocator", *(render.ROLE_TITLES[r].lower() for r in roles)], rows).split("\n")


def overall_cell(score: Overall, role: quantity.Role, failed: bool) -> str:
    if score.estimate is None:
        return "1" if score.verdict is None else quantity.ratio(score.ratio)
    text = quantity.ratio_and_span(score.estimate)
    suffix = "" if score.complete else f", {score.experiments} of {score.of}"
    return marked(text, cells.verdict_word(score, role)) + suffix + (", failed" if failed else "")


def every_row(part: Part) -> str:
    """Allocators against experiments, time and memory in each cell, so that no mean hides a row. With too few rounds
    for a ratio a figure is absolute, as the baseline's always is. Of a rate the ratio is the inverse: less is better.
    The null allocator's is the workload's own cost, and its column stands only where it was measured."""
    names = [peer.name for peer in part.analysis.candidates]
    rows = []
    for view in part.analysis.experiments:
        figures = [headline(view, roles) for roles in (TIMES, MEMORY)]
        if any(figures):
            shown = [[figure_cell(view, f, name, part.analysis.result.baseline) for f in figures] for name in names]
            shown.append([cells.null_cell(figure) if figure else "-" for figure in figures])
            name = " ".join(filter(None, (view.experiment.id, heap_off(view))))
            rows.append([cell_text(name), *map(two_in_one, shown)])
    heads = ["experiment", *names, "null"]
    if all(row[-1] == "-" for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return grid(heads, rows) if rows else ""


def two_in_one(shown: list[str]) -> str:
    return shown[0] if set(shown) <= {"-"} or set(shown) <= {"failed"} else "; ".join(shown)


def headline(view: ExperimentView, roles: tuple[Role, ...]) -> FigureView | None:
    """The figure of these roles that stands for the experiment."""
    fitting = [figure for figure in view.figures if figure.role in roles]
    return min(fitting, key=lambda figure: (not figure.headline, roles.index(figure.role)), default=None)


def figure_cell(view: ExperimentView, figure: FigureView | None, peer: str, baseline: str) -> str:
    if any(failure.peer == peer for failure in view.failures):
        return "failed"
    cell = figure.cells.get(peer) if figure else None
    if figure is None or cell is None:
        return "-"
    if peer == baseline or cell.estimate is None:
        return quantity.show(cell.summary.median, figure.spec.unit)
    cost = 1 / cell.estimate.ratio if figure.spec.better == "higher" else cell.estimate.ratio
    return marked(quantity.ratio(cost), cells.verdict_word(cell, figure.role, figure.spec))


def told(peer: Peer) -> str:
    return f"{peer.name} {peer.version or '?'} ({cell_text(peer.origin) or 'origin unknown'}, {peer.build_id[:12]})"
