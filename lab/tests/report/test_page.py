"""The report page: what it says must follow from the results, and it must work in a browser, alone and on a phone."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import browser
import pytest
import synthetic

from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.flamegraph import view
from freestone_lab.report import cells, plots, quantity, render_report, series, svg, trace_page
from freestone_lab.report.overview import analyse
from freestone_lab.report.verdict import conclude
from freestone_lab.trace import behaviour, corpus, events

TIME = FigureSpec("s", "lower", "time")
NAMES = ["glibc", "freestone", "mimalloc", "jemalloc", "gperftools"]
TWO = ("glibc", "other")


def result_of(
    specs: dict[str, FigureSpec], samples: list[Sample], names: Sequence[str] = TWO, params: Mapping[str, int] = {}
) -> Result:
    """One experiment, of a workload that nobody knows."""
    experiment = Experiment("strange", "strange", dict(params), specs, samples=samples)
    return Result("2026-11-20T12:00:00Z", ["x"], 1, {}, synthetic.peers(list(names)), [experiment])


@pytest.fixture(scope="module")
def program_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "program.html"
    path.write_text(render_report([synthetic.program()]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def suite_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "suite.html"
    path.write_text(render_report([synthetic.suite([*NAMES, "isoalloc", "tbbmalloc"])]), encoding="utf-8")
    return path


def test_known_curves_get_their_own_drawings(suite_page: Path) -> None:
    text = suite_page.read_text(encoding="utf-8")
    for title in ("How long a malloc takes at worst", "Overhead per size, by usable size", "Resident memory over time"):
        assert f"<figcaption>{title}<" in text
    assert "seconds</text>" in text


def test_every_run_of_a_main_figure_is_a_dot_at_its_round() -> None:
    """Two speeds of a machine, drift and outliers are in the samples, and in no median."""

    def drawn(result: Result) -> tuple[str, dict[str, list[list[float]]]]:
        both = re.findall(
            r"<figcaption>([^<]+), run by run<span>(.*?)</span>(.*?)</figure>", render_report([result]), re.S
        )
        assert [title for title, *_ in both] == ["CPU time", "Peak memory"]
        paths = re.findall(r'<g class="p p(\d+)"><path d="([^"]*)"', both[0][2])
        dots = {slot: re.findall(r"M ([\d.]+) ([\d.]+)", path) for slot, path in paths}
        return both[0][1], {slot: [[float(v) for v in dot] for dot in found] for slot, found in dots.items()}

    result = synthetic.program()
    ours = {s.round: s for s in result.experiments[0].samples if s.peer == "freestone"}
    ours[3].status = "failed"
    ours[7].figures["cpu"] *= 4
    note, dots = drawn(result)
    assert note == "a dot per run"
    assert {slot: len(found) for slot, found in dots.items()} == {"0": 12, "1": 11, "2": 12, "3": 12, "4": 12}
    assert [x for x, _ in dots["1"]] == [x for number, (x, _) in enumerate(dots["0"], 1) if number != 3]
    assert min((y, slot, x) for slot, found in dots.items() for x, y in found)[1:] == ("1", dots["0"][6][0])
    note, dots = drawn(synthetic.program(rounds=301))
    assert note == "a dot per run, of 151 of 301 rounds" and {len(found) for found in dots.values()} == {151}


def test_tables_have_captions_and_their_heads_a_scope(suite_page: Path, program_page: Path) -> None:
    described = behaviour.describe(events.read(corpus.traces(["lua"])[0]))
    pages = [page.read_text() for page in (suite_page, program_page, view.TEMPLATES / "profile.html")]
    for text in (*pages, trace_page.page("lua", described, [("glibc", 900.0, 800.0)])):
        assert 0 < text.count("<caption>") == text.count("<table")
        assert text.count("<th ") == text.count("<th scope=") > 0 == text.count("<th>")


def test_inconclusive_is_explained_where_it_is_shown(program_page: Path) -> None:
    """In the overview, not only in the folded help."""
    text = program_page.read_text(encoding="utf-8")
    overview = text[text.index("<h2>The comparison</h2>") : text.index("<h2>Figures</h2>")]
    assert (">inconclusive<" in overview) == ("“Inconclusive”: too few or too noisy runs" in overview)
    noisy = synthetic.program(rounds=5)
    for sample in noisy.experiments[0].samples:
        sample.figures["cpu"] *= 1 + sample.round * 11 % 7 / 3
    assert "“Inconclusive”: too few or too noisy runs" in render_report([noisy])


def test_page_loads_nothing_from_outside(suite_page: Path) -> None:
    text = suite_page.read_text(encoding="utf-8")
    without_namespaces = re.sub(r'xmlns(:xlink)?="[^"]*"', "", text)
    assert not re.findall(r"https?:|//[a-z]+\.[a-z]|@import|url\((?!#)", without_namespaces)
    assert not re.findall(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="(?!#)', without_namespaces)


def test_same_results_give_the_same_bytes(program_page: Path) -> None:
    assert render_report([synthetic.program()]) == program_page.read_text(encoding="utf-8")


@pytest.mark.all
@pytest.mark.parametrize("width", [1280, 375, 320])
@pytest.mark.parametrize("kind", ["program", "suite"])
def test_browser_shows_the_page_without_errors_or_sideways_scrolling(
    kind: str, width: int, program_page: Path, suite_page: Path
) -> None:
    page = program_page if kind == "program" else suite_page
    opened = "document.querySelectorAll('details').forEach(function(d){d.open=true});"
    dom = browser.dump(page, width, opened)
    assert 'data-errors="[]"' in dom
    found = re.search(r'data-width="(\d+)"', dom)
    assert found is not None
    assert int(found[1]) <= width
    assert 'data-ready="yes"' in dom
    for section in ("verdict", "overview", "pareto", "forest", "peers", "fingerprint", "experiments"):
        assert f'class="card {section}' in dom or f'class="{section}' in dom, section


@pytest.mark.all
def test_legend_keeps_one_allocator_in_view(suite_page: Path) -> None:
    dom = browser.dump(suite_page, 1280, "document.querySelector('.chip[data-slot=\"1\"]').click();")
    figure = re.search(r'<figure class="card dim">.*?</figure>', dom, re.S)
    assert figure is not None
    assert 'class="p p1 on"' in figure[0]
    assert 'class="p p2 on"' not in figure[0]


def test_what_is_compared_by_cpu_time_is_called_cpu_time() -> None:
    """The page said "Time" where the card beside it says "CPU", of the same figure."""
    text = render_report([synthetic.program()])
    assert "CPU time: how sure are we?" in text and "CPU time, glibc = 1; left is better" in text
    assert ">CPU time<br>glibc = 1</th>" in text and ">Time<br>" not in text
    assert ">Time<br>glibc = 1</th>" in render_report([synthetic.suite()])


def test_verdict_names_the_winner_of_both() -> None:
    found = conclude(analyse(synthetic.program()))
    assert found.sentence.startswith("freestone is both fastest and smallest: 29 % less time")
    assert any("12 pairs of runs" in detail for detail in found.details)


def equal() -> Result:
    result = synthetic.program()
    for sample in result.experiments[0].samples:
        base = next(s for s in result.experiments[0].samples if s.peer == "glibc" and s.round == sample.round)
        sample.figures = {k: v * (1 + 0.0001 * len(sample.peer)) for k, v in base.figures.items()}
    return result


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (synthetic.program(controls=False), "No difference in time and memory could be shown."),
        (synthetic.program(rounds=1), "No verdict: one round was measured, and one round cannot tell a difference"),
        (synthetic.program(rounds=2), "No verdict: 2 rounds cannot tell 5 allocators apart; it takes 5."),
        (equal(), "No difference in time and memory could be shown."),
    ],
    ids=["no control", "one round", "two rounds", "equal"],
)
def test_verdict_claims_nothing_that_is_not_shown(result: Result, said: str) -> None:
    found = conclude(analyse(result))
    assert found.sentence.startswith(said)
    controlled = any(peer.name == "glibc again" for peer in result.peers)
    assert controlled or any("no difference is claimed" in detail for detail in found.details)


@pytest.mark.parametrize(("close", "named"), [("a", "a"), ("abcd", "4 others")])
def test_a_shared_lead_names_who_is_not_told_apart_from_the_first(close: str, named: str) -> None:
    names = ["glibc", "glibc again", "best", *close, "slow"]
    samples = []
    for round_ in range(1, 13):
        for place, name in enumerate(names):
            time = {"glibc": 1.0, "glibc again": 1.0, "best": 0.8, "slow": 0.9}.get(name, 0.8 + place / 10000)
            figures = {"wall": time * (1 + round_ % 3 / 1000), "rss": 1.0 if name.startswith("glibc") else 2.0 + place}
            samples.append(Sample(name, round_, "ok", figures=figures))
    specs = {"wall": TIME, "rss": FigureSpec("KiB", "lower", "peak memory")}
    found = conclude(analyse(result_of(specs, samples, [n for n in names if n != "glibc again"])))
    assert found.sentence == f"best leads in time, with {named} not told apart from it; glibc is smallest in memory."
    assert ("Not told apart from best in time: a, b, c and d." in found.details) == (len(close) > 3)


def test_failed_allocator_is_shown_with_its_reason_and_never_ranked() -> None:
    result = synthetic.program()
    for sample in result.experiments[0].samples:
        if sample.peer == "freestone" and sample.round == 3:
            sample.status, sample.detail = "failed", "killed by signal 11 <Segmentation fault>"
    analysis = analyse(result)
    assert "freestone" not in analysis.ranked["speed"]
    found = conclude(analysis)
    assert not found.sentence.startswith("freestone")
    assert any("a run failed: freestone" in detail for detail in found.details)
    page = render_report([result])
    assert "failed in 1 of 13 runs: killed by signal 11 &lt;Segmentation fault&gt;" in page


def test_library_that_was_not_loaded_is_not_called_proven() -> None:
    page = render_report([synthetic.suite(["glibc", "freestone", "tbbmalloc"], rounds=3)])
    summary = r"<summary>([\w-]+) <span class=\"small\">1.2.3</span>.*?<span class=\"tag \w+\">([\w ]+)<"
    assert dict(re.findall(summary, page)) == {"glibc": "proven", "freestone": "proven", "tbbmalloc": "not proven"}


def test_caveats_and_null_cost_stand_beside_their_figures(program_page: Path) -> None:
    text = program_page.read_text(encoding="utf-8")
    assert text.count("Two CPUs are shared with the launcher.") >= 2  # overview, figures
    assert "the workload itself is 30 % of glibc&#39;s cost" in text


def null_notes(identity: str, *null: Sample, with_null: bool = True) -> set[str]:
    """What the page and the document say of the null allocator beside the figures of one experiment."""
    samples = synthetic.samples(["glibc", "glibc again", "other"], 8, {"wall": (1.0, TIME)}, 1)
    result = result_of({"wall": TIME}, [*samples, *null])
    result.peers = [p for p in result.peers if with_null or p.name != "null"]
    result.experiments[0].id = identity
    (figure,) = [f for f in analyse(result).experiments[0].figures if f.name == "wall"]
    return {cells.null_note(figure, "glibc"), cells.null_cell(figure)}


def test_why_the_null_allocator_has_no_figure_stands_in_its_place() -> None:
    failed = Sample("null", 1, "failed", "answered NULL")
    assert null_notes("micro/published") == {"null allocator: none (would need 158 GiB)", "- (would need 158 GiB)"}
    assert null_notes("other", failed) == {"null allocator: none (failed)", "- (failed)"}
    assert null_notes("other") == {"null allocator: none (not run)", "- (not run)"}
    assert null_notes("micro/published", with_null=False) == {"", "-"}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (4.0, "null allocator: 4.00 s; no less than glibc, for all its memory is fresh from the kernel"),
        (0.25, "null allocator: 250 ms; the workload itself is 25 % of glibc's cost"),
    ],
)
def test_a_null_allocator_that_costs_more_than_the_baseline_is_no_share_of_it(seconds: float, said: str) -> None:
    notes = null_notes("other", Sample("null", 1, "ok", figures={"wall": seconds}))
    assert any(note.startswith(said) for note in notes)


def test_unknown_workload_with_odd_figures_still_renders() -> None:
    specs = {"wobble": FigureSpec("furlongs"), "zero": FigureSpec("s"), "rate": FigureSpec("1e6/s", "higher")}
    samples = [
        Sample(n, r, "ok", figures={"wobble": 3.0 + r, "zero": 0.0, "rate": 5.0}, series={"odd": [[0, 1], [1, 0]]})
        for r in range(4)
        for n in ("glibc", "glibc again", "other")
    ]
    result = result_of(specs, samples)
    result.created = "yesterday"
    page = render_report([result])
    assert "5.00 M/s" in page and "furlongs" in page
    result.experiments = []
    assert "nothing to compare" in render_report([result])


def test_several_results_stand_one_after_another() -> None:
    page = render_report([synthetic.program(), synthetic.program(["glibc", "jemalloc"])])
    assert page.count('class="verdict"') == 2


def test_overall_counts_every_workload_once() -> None:
    """Ten experiments of one workload weigh as much as one of another."""
    names = ["glibc", "glibc again", "other"]

    def one(workload: str, number: int, factor: float) -> Experiment:
        samples = [
            Sample(n, r, "ok", figures={"wall": (factor if n == "other" else 1.0) * (1 + 0.001 * r), "rss": 1.0})
            for r in range(9)
            for n in names
        ]
        specs = {"wall": FigureSpec("s"), "rss": FigureSpec("KiB")}
        return Experiment(f"{workload}/{number}", workload, {}, specs, [], samples)

    listed = synthetic.peers(["glibc", "other"])
    result = Result("", [], 1, {}, listed, [*(one("a", i, 4.0) for i in range(10)), one("b", 0, 1.0)])
    assert analyse(result).overall["speed"]["other"].ratio == pytest.approx(2.0)


def test_rates_count_as_costs_in_the_overall_ratio() -> None:
    result = synthetic.suite(["glibc", "freestone"], rounds=7)
    result.experiments = [e for e in result.experiments if e.workload == "throughput"]
    ratio = analyse(result).overall["speed"]["freestone"].ratio
    assert 0.6 < ratio < 0.85  # more operations per second: less cost


def test_process_time_of_a_workload_is_not_its_figure() -> None:
    specs = {"wall": FigureSpec("s"), "rss": FigureSpec("KiB"), "pair_ns": FigureSpec("ns"), "time": FigureSpec("s")}
    figures = {"wall": 9.0, "rss": 5.0, "pair_ns": 2.0, "time": 1.0}
    samples = [Sample("glibc", r, "ok", figures=dict(figures)) for r in range(3)]
    view = analyse(result_of(specs, samples, ["glibc"])).experiments[0]
    assert {f.name for f in view.figures if f.headline} == {"pair_ns", "rss"}


def test_points_of_a_sweep_are_drawn_and_do_not_count_twice() -> None:
    sizes = (16, 64, 256)
    specs = {f"pair_ns_size_{n}": FigureSpec("ns") for n in sizes}
    specs |= {"pair_ns": FigureSpec("ns"), "malloc_p99": FigureSpec("ns"), "malloc_p99_9": FigureSpec("ns")}
    samples = [
        Sample(p, r, "ok", figures=dict.fromkeys(specs, 2.0), series={"pair_ns": [[n, 2.0] for n in sizes]})
        for r in range(3)
        for p in ("glibc", "other")
    ]
    result = result_of(specs, samples, params={"threads": 2})
    view = analyse(result).experiments[0]
    assert {f.name for f in view.figures if f.headline} == {"pair_ns", "malloc_p99", "malloc_p99_9"}
    assert render_report([result]).count("Pair ns, 2 threads<") == 1


def test_counts_of_separate_runs_are_shown_and_not_compared() -> None:
    result = synthetic.program()
    result.experiments[0].specs["instructions"] = FigureSpec("count", "lower")
    result.experiments[0].samples.append(Sample("freestone", -1, "ok", figures={"instructions": 123456789.0}))
    assert "123,456,789" in render_report([result])


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.00123, "s", "1.23 ms"), (20480, "KiB", "20.0 MiB"), (1_234_567, "count", "1,234,567"),
        (4.2e7, "1/s", "42.0 M/s"), (3.5, "1e6/s", "3.50 M/s"), (3.5e6, "ops/s", "3.50 Mops/s"), (12.34, "%", "12.3 %"),
        (0.0, "ns", "0 ns"),
    ],
)  # fmt: skip
def test_figures_get_the_unit_a_person_would_choose(value: float, unit: str, shown: str) -> None:
    assert quantity.show(value, unit) == shown


def test_frontier_holds_exactly_the_unbeaten() -> None:
    look = plots.Look(1)
    points = [plots.Point(n, look, x, y) for n, x, y in (("a", 1, 3), ("b", 2, 2), ("c", 2.5, 2.5), ("d", 3, 1))]
    assert [p.name for p in plots.frontier(points)] == ["a", "b", "d"]


@pytest.mark.parametrize(("low", "high"), [(0.97, 1.03), (0.7, 1.1), (0.5, 2.2), (0.9, 40), (0.99, 1.005), (0.02, 1.5)])
def test_ratio_axis_has_readable_ticks(low: float, high: float) -> None:
    ticks = plots.ratio_ticks(low, high)
    assert 1.0 in ticks
    assert 2 <= len(ticks) <= 6


def test_labels_of_crowded_points_do_not_overlap() -> None:
    look = plots.Look(1)
    points = [plots.Point(f"allocator{i}", look, 0.9 + 0.01 * (i % 4), 1.0 + 0.02 * (i // 4)) for i in range(12)]
    drawing = plots.pareto(points, "x", "y", "t")
    found = re.findall(r'<text style="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(allocator\d+)<', drawing)
    boxes = [(float(x), float(y)) for x, y, _ in found]
    assert len(boxes) == 12
    assert all(abs(a[0] - b[0]) > 49 or abs(a[1] - b[1]) > 9 for i, a in enumerate(boxes) for b in boxes[:i])


def test_drawings_carry_no_fixed_colour_and_follow_the_theme() -> None:
    drawing = plots.forest([plots.Span("a", plots.Look(2), 0.9, (0.8, 0.95))], "x", "t")
    assert not re.findall(r"#[0-9a-f]{6}", re.sub(r'(href|url\()="?#\w+', "", drawing))
    assert "var(--s2)" in drawing
    alone = svg.standalone(drawing)
    assert "prefers-color-scheme:dark" in alone
    assert "--s2:" in alone


def test_a_name_cannot_end_the_script() -> None:
    assert "</script><b>" not in render_report([synthetic.program(["glibc", "jemalloc</script><b>"])])


def test_worst_overheads_survive_into_the_drawing() -> None:
    """A saw of many points is shown by its teeth, not by every n-th point."""
    saw = [[float(n), 100.0 * (n % 16 == 1)] for n in range(8, 4000)]
    samples = [Sample("glibc", r, "ok", series={"usable_overhead_percent": saw}) for r in (1, 2)]
    points = series.typical(samples, "usable_overhead_percent")
    curve = series.overhead(plots.Curve("glibc", plots.Look(0), [x for x, _ in points], [y for _, y in points]))
    assert min(y for x, y in zip(curve.x, curve.y, strict=True) if x > 128) == 100.0


def many_workloads(factor: float, count: int, rounds: int, fixed: bool) -> Result:
    """Rounds of `count` workloads; `fast` takes `factor` of the baseline's time in each, give or take a little."""
    names = ["glibc", "glibc again", "fast", "even"]
    experiments = []
    for number in range(count):
        samples = []
        for round_ in range(1, rounds + 1):
            for place, name in enumerate(names):
                wobble = 1 + 0.004 * ((number * 7 + round_ * 3 + place * 5) % 9 - 4)
                scale = factor if name == "fast" else 1.0
                samples.append(Sample(name, round_, "ok", figures={"wall": scale * wobble, "rss": 1000.0 * wobble}))
        specs = {"wall": FigureSpec("s"), "rss": FigureSpec("KiB")}
        experiments.append(Experiment(f"w{number}/x", f"w{number}", specs=specs, samples=samples, rounds_fixed=fixed))
    listed = [Peer("glibc", None, "libc"), Peer("fast", "/fast.so"), Peer("even", "/even.so")]
    return Result("2026-11-20T12:00:00Z", ["freestone", "bench", "full"], 1, {}, listed, experiments)


def test_a_pair_is_a_round_and_a_number_fixed_before_needs_fewer() -> None:
    analysis = analyse(many_workloads(0.8, 20, 5, True))
    found = analysis.overall["speed"]["fast"]
    assert found.verdict == "better" and found.estimate is not None and found.estimate.pairs == 5
    assert analysis.overall["speed"]["even"].verdict in ("same", "inconclusive")
    assert conclude(analysis).sentence.startswith("fast is fastest, ")
    stoppable = analyse(many_workloads(0.8, 20, 5, False)).overall["speed"]["fast"].estimate
    assert stoppable is not None and stoppable.high / stoppable.low > found.estimate.high / found.estimate.low
    assert conclude(analyse(many_workloads(0.5, 20, 4, True))).sentence.startswith("No verdict: 4 rounds")
