"""One measurement, one number: card, terminal, tables, page and result file show the same ratios and values."""

import html
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from rich.console import Console

from freestone_lab.analysis import claims
from freestone_lab.commands.places import Places
from freestone_lab.core.result import Experiment, FigureSpec, Result, Sample
from freestone_lab.core.result_file import load
from freestone_lab.report import card, export, render_report, terminal

CHANGE = re.compile(r"[-+][\d.]+ % \([-+][\d.]+ … [-+][\d.]+\)")


def served(rounds: int = 24) -> Result:
    """A server under load: a rate, of which more is better, with slow runs that move medians and ratios apart."""
    result = synthetic.program(rounds=rounds)
    old = result.experiments[0]
    specs = {"requests": FigureSpec("ops/s", "higher", "requests per second"), "rss": FigureSpec("KiB")}
    samples = [
        Sample(s.peer, s.round, "ok", figures={"requests": 2e5 / s.figures["wall"], "rss": s.figures["rss"]})
        for s in old.samples
        if (s.round + len(s.peer)) % 5
    ]
    result.experiments = [Experiment(old.id, old.workload, old.params, specs, [], samples)]
    return result


def shown(result: Result) -> str:
    out = Console(width=200, file=io.StringIO(), record=True)
    for table in claims.tables(result):
        terminal.show_table(out, table)
        terminal.show_verdict(out, table)
    return out.export_text()


def on_page(result: Result) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", render_report([result])))


def on_card(result: Result) -> str:
    found = card.of_result(result)
    assert found is not None
    out = Console(width=300, file=io.StringIO(), record=True)
    terminal.show_card(out, found)
    return out.export_text()


WAYS: dict[str, Callable[[Result], str]] = {
    "card": on_card,
    "terminal": shown,
    "markdown": lambda result: export.markdown(claims.tables(result)),
    "page": on_page,
}


@pytest.mark.parametrize("make", [synthetic.program, served])
@pytest.mark.parametrize("way", WAYS)
def test_every_ratio_is_one_that_the_result_file_claims(way: str, make: Callable[..., Result], tmp_path: Path) -> None:
    result = make(rounds=24)
    Places(tmp_path / "r.json", tmp_path / "r.html").write(result, claims.tables(result))
    stored = load(tmp_path / "r.json").claims
    assert {c.peer for c in stored} == {"freestone", "mimalloc", "jemalloc", "gperftools"}
    known = set()
    for c in stored:
        assert c.low is not None and c.high is not None
        low, high = (f"{(x - 1) * 100:+.1f}" for x in (c.low, c.high))
        known.add(f"{(c.ratio - 1) * 100:+.1f} % ({low} … {high})")
    others = {  # controls, and figures that decide nothing
        claims.change(cell.estimate)
        for table in claims.tables(result)
        for row in table.rows
        for name, cell in row.cells.items()
        if cell.estimate and (row.peer in table.controls or name not in claims.headline(table.experiment))
    }
    said = set(CHANGE.findall(WAYS[way](result)))
    assert said and said <= known | others, said - known
    if way != "card":
        assert known <= said


@pytest.mark.parametrize("make", [synthetic.program, served])
def test_the_values_agree_with_the_ratio(make: Callable[..., Result]) -> None:
    result = make(rounds=24)
    for table in claims.tables(result):
        for row in table.rows:
            for name, cell in row.cells.items():
                base = table.rows[0].cells[name]
                if cell.estimate is not None:
                    assert cell.typical / base.typical == pytest.approx(cell.estimate.ratio)
    assert re.search(r"^values .*memory \S+ MiB instead of \S+ MiB$", on_card(result), re.MULTILINE)


def test_a_failure_stands_on_the_card_in_words() -> None:
    result = synthetic.program(rounds=12)
    aborted = "killed by SIGABRT: freestone: write after free"
    words = (aborted, "killed by SIGSEGV", "exit status 3", "no end within 9 s")
    for why, name in zip(words, ("freestone", "mimalloc", "jemalloc", "gperftools"), strict=True):
        result.experiments[0].samples.append(Sample(name, 12, "failed", why))
    assert card.of_result(result) is None, "nobody is left to compare"
    result.experiments[0].samples = [s for s in result.experiments[0].samples if s.detail != words[3]]
    text = on_card(result)
    assert all(why in text for why in words[:3]) and "; and " not in text


def test_nothing_is_ranked_while_somebody_was_not_measured() -> None:
    result = synthetic.program(rounds=12)
    experiment = result.experiments[0]
    experiment.samples = [s for s in experiment.samples if s.peer not in ("mimalloc", "jemalloc")]
    experiment.not_run = {"mimalloc": "no time within 90 s", "jemalloc": "no time within 90 s"}
    said = "not known yet: mimalloc, jemalloc were not measured (no time within 90 s)"
    assert on_card(result).startswith(said)
    result.command[1] = "bench"
    said = "No verdict: 2 of 5 allocators were not measured everywhere, for lack of time: mimalloc and jemalloc."
    assert said in on_page(result)


def test_small_differences_of_memory_decide_nothing() -> None:
    result = synthetic.program(["glibc", "freestone"], rounds=24)
    for sample in result.experiments[0].samples:
        sample.figures["rss"] = 3000.0 * (1.3 if sample.peer == "freestone" else 1)
    assert on_card(result).startswith("use freestone instead of glibc")
    for sample in result.experiments[0].samples:
        sample.figures = {**sample.figures, "cpu": 1.0, "wall": 1.0, "rss": 4000.0 - sample.figures["rss"] / 3}
    assert on_card(result).startswith("keep glibc"), "a few hundred KiB less are no reason"


def test_cpu_time_decides_where_wall_time_is_noise() -> None:
    result = synthetic.program(["glibc", "freestone"], rounds=30)
    for sample in result.experiments[0].samples:
        sample.figures["wall"] *= 1 + (sample.round * 7 + len(sample.peer)) % 11
        sample.gauges = {"load": 70.0, "cpu_pressure": 0.9}
    result.fingerprint = {**result.fingerprint, "load": 70.0}
    text = on_card(result)
    assert text.startswith("use freestone instead of glibc")
    assert re.search(r"best candidate +CPU .*\n.*use freestone +freestone +-", text) and "; time " in text
    assert "unfit for wall time" in text


def test_a_program_that_waits_is_judged_by_its_time() -> None:
    result = synthetic.program(["glibc", "freestone"], rounds=12)
    for sample in result.experiments[0].samples:
        sample.figures["wall"] = 6.0 + sample.figures["cpu"] / 1e4
        sample.figures["cpu"], sample.figures["rss"] = sample.figures["cpu"] / 1e3, 1e5
    assert on_card(result).startswith("keep glibc")


def test_the_card_says_versions_newer_ones_and_the_mode_of_huge_pages() -> None:
    result = synthetic.program(["glibc", "freestone", "jemalloc", "gperftools"])
    result.peers = [replace(p, name="jemalloc-deb") if p.name == "jemalloc" else p for p in result.peers]
    for sample in result.experiments[0].samples:
        sample.peer = "jemalloc-deb" if sample.peer == "jemalloc" else sample.peer
        sample.gauges = {"load": 0.5}
    text = on_card(result)
    said = "glibc 1.2.3, freestone 1.2.3, jemalloc-deb 1.2.3, gperftools 1.2.3"
    assert f"versions  {said}; newer: freestone peers install jemalloc tcmalloc" in text
    assert re.search(r"^machine .*, huge pages madvise", text, re.MULTILINE)
    assert "huge pages madvise" in on_page(result)


@pytest.mark.parametrize(("is_terminal", "width"), [(False, 40), (True, 40), (True, 200)])
def test_no_cell_of_a_table_is_broken_however_narrow_the_output(
    is_terminal: bool, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [("glibc", "a whole page [sic]", "/usr/lib/somewhere/libc.so"), ("other", "", "/opt/quite/far/away/lib.so")]
    out = Console(width=width, file=io.StringIO(), record=True, force_terminal=is_terminal, color_system=None)
    terminal.show_grid(out, ["allocator", "what it says", "path"], rows, "Rules")
    text = out.export_text()
    for cell in ("Rules", "what it says", *rows[0], *rows[1]):
        assert cell in text
    assert len(text.splitlines()) == (6 if is_terminal and width == 40 else 4)


def on_terminal(width: int) -> Console:
    return Console(width=width, file=io.StringIO(), record=True, force_terminal=True, color_system=None)


@pytest.mark.parametrize("width", [60, 80, 120, 300])
@pytest.mark.parametrize("label", ["", "CPU time of the replay, less its own"])
def test_the_table_of_a_comparison_folds_at_the_terminals_width(width: int, label: str) -> None:
    result = synthetic.program(rounds=24)
    specs = result.experiments[0].specs
    specs["cpu"] = replace(specs["cpu"], label=label or specs["cpu"].label)
    specs["instructions"] = FigureSpec("", label="instructions")
    result.experiments[0].samples += [
        Sample(name, -1, "ok", figures={"instructions": 1e9}) for name in ("glibc", "freestone", "mimalloc")
    ]
    (table,) = claims.tables(result)
    out = on_terminal(width)
    terminal.show_table(out, table)
    text = out.export_text()
    assert max(map(len, text.splitlines())) <= width
    for row in table.rows:
        lines = "\n".join(line for line in text.splitlines() if line.startswith(f"{row.peer} "))
        for name in claims.headline(table.experiment):
            assert all(cell in lines for cell in export.cells_of(table, row, name)), (row.peer, name)
    assert (text.count("\nallocator ") > 2) == (width < 300), "the allocator's name opens each block"


def test_a_terminal_too_narrow_for_a_column_gets_a_block_for_each_row() -> None:
    out = on_terminal(30)
    rows = [["an-allocator OPTION=1", "-20.0 % (-20.3 … -19.7)"], ["other", "-1.0 % (-1.3 … -0.7)"]]
    terminal.show_grid(out, ["allocator", "change (95 %)"], rows, group=3)
    assert out.export_text().splitlines() == [
        "an-allocator OPTION=1", "  change (95 %): -20.0 % (-20.3 … -19.7)", "other",
        "  change (95 %): -1.0 % (-1.3 … -0.7)",
    ]  # fmt: skip
