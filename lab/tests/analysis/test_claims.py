"""From samples to claims: failures never become figures, peers never mix, the sentence says what the table shows."""

import re
from collections.abc import Sequence

import numpy as np

from freestone_lab.analysis import claims, paired
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample, Status
from freestone_lab.report import export

TIME = FigureSpec("s", "lower", "time")
MEMORY = FigureSpec("KiB", "lower", "peak memory")


def experiment(factors: dict[str, float], rounds: int = 12, seed: int = 3) -> Experiment:
    """Every peer's time and memory as a factor of the baseline's, with one per cent of noise."""
    random = np.random.default_rng(seed)
    samples = []
    for round_ in range(1, rounds + 1):
        for peer, factor in factors.items():
            wall = factor * float(random.lognormal(0, 0.004))
            samples.append(Sample(peer, round_, "ok", figures={"wall": wall, "rss": 1000 * factor}))
    return Experiment("e", "program", specs={"wall": TIME, "rss": MEMORY}, samples=samples)


EQUAL = {"glibc": 1.0, "glibc again": 1.0}


def said(e: Experiment, controls: Sequence[str] = ()) -> str:
    """The answer in one sentence."""
    return export.verdict_of(claims.table_of(e, "glibc", controls=controls))


def row_of(e: Experiment, peer: str, controls: Sequence[str] = ()) -> claims.Row:
    found = claims.table_of(e, "glibc", controls=controls).row(peer)
    assert found is not None
    return found


def fail(e: Experiment, peer: str, status: Status, detail: str, round_: int = 4) -> None:
    sample = next(s for s in e.samples if s.peer == peer and s.round == round_)
    sample.status, sample.detail, sample.figures = status, detail, {}


def test_verdicts_of_a_clear_case() -> None:
    table = claims.table_of(experiment({**EQUAL, "fast": 0.8, "slow": 1.2, "even": 1.0}), "glibc")
    found = {row.peer: row.cells["wall"].verdict for row in table.rows if row.peer not in EQUAL}
    assert found == {"fast": "better", "slow": "worse", "even": "same"}


def test_one_failed_run_takes_every_figure_of_that_peer() -> None:
    e = experiment({**EQUAL, "crasher": 0.5})
    fail(e, "crasher", "failed", "killed by SIGSEGV")
    row = row_of(e, "crasher")
    assert (row.status, row.detail, row.cells, row.failed) == ("failed", "killed by SIGSEGV", {}, 1)


def test_a_peer_that_fails_fast_is_never_called_fast() -> None:
    e = experiment({**EQUAL, "crasher": 0.01, "steady": 0.9})
    for round_ in range(1, 13):
        fail(e, "crasher", "failed", "killed by SIGABRT", round_)
    assert said(e).startswith("use steady instead of glibc") and "crasher" not in said(e)


def test_a_warm_up_failure_keeps_the_row() -> None:
    e = experiment(EQUAL)
    e.samples.append(Sample("absent", 0, "not_loaded", "malloc was bound to libc.so.6"))
    row = row_of(e, "absent")
    assert (row.status, row.cells) == ("not_loaded", {})


def test_each_peers_median_is_of_its_own_samples() -> None:
    table = claims.table_of(experiment({**EQUAL, "a": 2.0, "b": 4.0}), "glibc")
    medians = {row.peer: round(row.cells["rss"].summary.median) for row in table.rows}
    assert medians == {"glibc": 1000, "glibc again": 1000, "a": 2000, "b": 4000}


def test_only_rounds_in_which_both_ran_are_paired() -> None:
    e = experiment({**EQUAL, "late": 0.9})
    e.samples = [s for s in e.samples if not (s.peer == "late" and s.round <= 4)]
    found = paired.estimate(e, "late", "glibc", "wall")
    assert found is not None and found.pairs == 8


def test_a_difference_below_the_noise_floor_is_not_claimed() -> None:
    e = experiment({**EQUAL, "slightly": 0.97})
    random = np.random.default_rng(0)
    for s in e.samples:
        if s.peer == "glibc again":
            s.figures["wall"] *= 1 + 0.1 * float(random.random())
    assert claims.table_of(e, "glibc").floors["wall"] > 0.03
    assert row_of(e, "slightly").cells["wall"].verdict == "inconclusive"


def test_a_difference_that_one_run_of_the_baseline_alone_shows_is_not_claimed() -> None:
    # Two per cent of noise and nothing else; with this seed the baseline's first run is lower than the twin's by
    # more than the control shows, and its second run is not.
    random = np.random.default_rng(2115)
    names = ("glibc", "glibc again", "twin")
    drawn = {name: random.lognormal(0, 0.02, 10) for name in names}
    samples = [Sample(n, r + 1, "ok", figures={"wall": float(drawn[n][r])}) for r in range(10) for n in names]
    cell = row_of(Experiment("e", "w", specs={"wall": TIME}, samples=samples), "twin").cells["wall"]
    assert cell.estimate is not None and cell.estimate.low > 1
    assert cell.verdict == "inconclusive"


def test_without_a_control_nothing_is_claimed() -> None:
    assert row_of(experiment({"glibc": 1.0, "fast": 0.5}), "fast").cells["wall"].verdict == "inconclusive"


def test_many_rivals_raise_the_bar() -> None:
    few = row_of(experiment({**EQUAL, "r0": 0.9}, rounds=6), "r0").cells["wall"]
    many = row_of(experiment({**EQUAL, **{f"r{i}": 0.9 for i in range(9)}}, rounds=6), "r0").cells["wall"]
    assert few.verdict == "better"
    wide, narrow = many.estimate, few.estimate
    assert wide is not None and narrow is not None and wide.half_width > 1.1 * narrow.half_width


def test_controls_have_ratios_and_no_verdict_and_never_win() -> None:
    e = experiment({**EQUAL, "null": 0.1, "a": 0.9})
    cell = row_of(e, "null", ["null"]).cells["wall"]
    assert cell.estimate is not None and cell.verdict == "inconclusive"
    assert said(e, ["null"]).startswith("use a instead")


def test_the_sentence_names_who_is_not_told_apart() -> None:
    assert re.search("; not told apart from [ab]: [ab]$", said(experiment({**EQUAL, "a": 0.80, "b": 0.8}, rounds=5)))
    other = said(experiment({**EQUAL, "a": 0.80, "b": 0.9}))
    assert "not told apart" not in other and re.search(r"time -\d\d\.\d % \(-\d\d\.\d … -\d\d\.\d\)", other)


def test_use_needs_an_interval_without_no_difference() -> None:
    e = experiment({**EQUAL, "wild": 0.7})
    for s in e.samples:
        if s.peer == "wild" and s.round % 3 == 0:
            s.figures["wall"] = 2.0
    assert said(e).startswith("not known yet: nothing is shown to be better than glibc, and wild may be")


def test_the_sentence_when_nobody_is_faster() -> None:
    text = said(experiment({**EQUAL, "a": 1.2, "b": 1.0}))
    assert text.startswith("keep glibc: nothing measured is better by more than 3 %; b: time ")


def test_rows_keep_the_order_of_the_result() -> None:
    e = experiment({"b": 1.0, **EQUAL, "a": 1.0})
    peers = [Peer("glibc", None, "libc"), Peer("a", "/a.so"), Peer("b", "/b.so")]
    table = claims.tables(Result("", [], 0, {}, peers, [e]))[0]
    assert [row.peer for row in table.rows] == ["glibc", "a", "b", "glibc again"]


def test_headline_prefers_the_workloads_own_figure_over_its_points() -> None:
    specs = {
        "wall": TIME,
        "rss": MEMORY,
        "pair_ns_size_16": FigureSpec("ns", "lower"),
        "pair_ns": FigureSpec("ns", "lower"),
        "blocks": FigureSpec("count", "neither"),
    }
    assert claims.headline(Experiment("e", "w", specs=specs)) == ["pair_ns", "rss"]
    assert claims.headline(Experiment("e", "w", specs={"wall": TIME, "rss": MEMORY})) == ["wall", "rss"]


def test_words_follow_the_unit() -> None:
    assert claims.verdict_word("better", MEMORY) == "smaller"
    assert claims.verdict_word("worse", FigureSpec("1/s", "higher")) == "slower"
    assert claims.verdict_word("worse", FigureSpec("count", "lower")) == "worse"
    assert claims.verdict_word("same", TIME) == "same"
