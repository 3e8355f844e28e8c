"""The card that a comparison's page opens with, and the question whether to go on."""

import io
import math
import os
import pty
import random
import re
import sys

import pytest
from rich.console import Console

from freestone_lab.analysis import claims
from freestone_lab.analysis.sequential import Estimate
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.report import card, quantity, render_report, terminal
from freestone_lab.report.board import ask_for_more

PEERS = [Peer("glibc", None, "libc"), Peer("fast", "/opt/libfast.so"), Peer("lean", "/opt/lean.so")]
SPECS = {"wall": FigureSpec("s", "lower"), "rss": FigureSpec("KiB", "lower")}


def job(name: str, ratios: dict[str, tuple[float, float]], rounds: int = 12) -> Experiment:
    """Time and memory of each allocator as ratios to glibc's, with a per mille of noise."""
    samples = [
        Sample(peer, n, "ok", figures={"wall": t * (1 + (n * 7 % 5) / 1000), "rss": 1e4 * m * (1 + n % 3 / 1000)})
        for n in range(1, rounds + 1)
        for peer, (t, m) in {"glibc": (1.0, 1.0), "glibc again": (1.0, 1.0), **ratios}.items()
    ]
    return Experiment(name, name, {}, dict(SPECS), [], samples)


def result(*jobs: Experiment, command: list[str]) -> Result:
    return Result(
        created="2026-11-20T12:00:00Z", command=command, seed=1, fingerprint={}, peers=PEERS, baseline="glibc",
        experiments=list(jobs),
    )  # fmt: skip


def card_of(*jobs: Experiment) -> card.Card:
    found = card.of_result(result(*jobs, command=["freestone", "compare", "--", "./app"]))
    assert found is not None
    return found


def test_the_page_of_a_comparison_opens_with_the_card() -> None:
    compared = job("app", {"fast": (0.7, 1.0), "lean": (1.2, 0.9)})
    text = render_report([result(compared, command=["freestone", "compare", "--", "./app"])])
    head = text.index('<h1 class="verdict">Use fast instead of glibc: 30 % less time, equal memory</h1>')
    assert head < text.index("LD_PRELOAD=/opt/libfast.so ./app") < text.index("<h2>The comparison</h2>")
    assert "-30.0 %" in text[head : text.index("<h2>The comparison</h2>")]


def test_the_card_of_several_jobs_has_a_row_for_each_and_one_in_all() -> None:
    better, worse = {"fast": (0.8, 1.0), "lean": (1.1, 0.9)}, {"fast": (1.5, 1.0), "lean": (1.4, 1.0)}
    found = card_of(job("a", better), job("b", better), job("c", worse))
    lines = dict(found.lines)
    assert found.sentence == "use fast instead of glibc: 1.4 % less CPU, equal memory over 3 programs"
    assert found.headings == ("program", "answer", "best candidate", "time", "memory", "how sure")
    memory, sure = "+0.0 % (-0.3 … +0.3)", "12 rounds, settled"
    a, _, c, every = found.rows
    assert a == ("a", "use fast", "fast", "-20.0 % (-20.3 … -19.7)", memory, sure)
    assert c == ("c", "keep glibc", "lean", "+40.0 % (+39.5 … +40.5)", memory, sure)
    assert every[:3] == ("in all", "use fast", "fast") and every[3].startswith("-1.4 % (")
    assert every[4:] == (memory, "best in 2 of 3 programs")
    values = "time 802 ms instead of 1.00 s; memory 9.78 MiB instead of 9.78 MiB"
    assert lines["values"].startswith(f"a, b: fast: {values} | c: lean: time 1.40 s"), "once for equal programs"
    assert lines["all"].startswith("3 programs, geometric mean: fast: CPU -1.")
    assert "LD_PRELOAD=/opt/libfast.so" in lines["adopt"]


def noisy(name: str, fast: float, lean: float, rounds: int = 30) -> Experiment:
    """Time in which a fifth more or less is chance; 9 and 20 % more memory."""
    found, generator = job(name, {"fast": (fast, 1.09), "lean": (lean, 1.2)}, rounds), random.Random(name)
    for sample in found.samples:
        sample.figures["wall"] *= generator.gauss(1, 0.16)
    return found


def test_the_mean_over_all_programs_answers_though_none_of_them_does() -> None:
    jobs = [noisy(name, 0.86, 1.0) for name in "abcde"]
    found = card_of(*jobs)
    assert re.fullmatch(r"use fast instead of glibc: 1\d % less CPU for 9.0 % more memory over 5 \w+", found.sentence)
    page = render_report([result(*jobs, command=["freestone", "compare"])])
    assert f'<h1 class="verdict">U{found.sentence[1:]}</h1>' in page and "<td>by the mean over all</td>" in page
    assert [row[1] for row in found.rows] == ["not known yet"] * 5 + ["use fast"]
    assert "LD_PRELOAD=/opt/libfast.so" in dict(found.lines)["adopt"]


def test_the_headline_gives_the_interval_of_what_is_not_claimed_and_says_so() -> None:
    found = card_of(*(noisy(name, 1.0, 1.0) for name in "ab"))
    said = r".* % more memory than glibc; CPU \S+ % \(-\S+ … \+\S+\), not shown over 2 programs"
    assert re.fullmatch(f"not known yet: .*; (fast|lean): {said}", found.sentence), found.sentence


def test_who_is_shown_to_be_worse_is_named_with_what() -> None:
    """The answer, too, where it is larger; nobody whose figures may be the baseline's."""
    (one,) = (
        said for word, said in card_of(job("a", {"fast": (0.7, 1.1), "lean": (1.0, 1.2)})).lines if word == "worse"
    )
    assert one == "than glibc: fast (memory +10.0 %), lean (memory +20.0 %)"
    assert "worse" not in dict(card_of(job("a", {"fast": (0.7, 1.0), "lean": (1.0, 0.9)})).lines)
    slow, large = {"fast": (1.1, 1.0)}, {"fast": (1.0, 1.3)}
    lines = dict(card_of(job("a", slow), job("b", large), job("c", large)).lines)
    assert lines["worse"] == (
        "in all: than glibc: fast (CPU +3.2 %, memory +19.1 %) | a: than glibc: fast (time +10.0 %)"
        " | b, c: than glibc: fast (memory +30.0 %)"
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_cards_table_folds_at_the_terminals_width(width: int) -> None:
    found = card_of(*(noisy(name, 0.86, 1.0) for name in "abcde"))
    out = Console(width=width, file=io.StringIO(), record=True, force_terminal=True, color_system=None)
    terminal.show_card(out, found)
    headline, *lines = out.export_text().splitlines()
    assert headline == found.sentence
    table = lines[: -len(found.lines)]
    assert max(map(len, table)) <= width
    for row in found.rows:
        shown = " ".join(line for line in table if line.startswith(row[0]))
        assert all(cell in shown for cell in row), (row, shown)


def test_memory_stands_beside_time_in_bytes() -> None:
    large = {"fast": (0.8, 2.0)}
    found = card_of(job("a", large), job("b", large))
    assert found.rows[0][4].startswith("+100.0 %")
    assert "19.6 MiB instead of 9.78 MiB" in dict(found.lines)["values"]


@pytest.mark.parametrize(
    ("time", "memory", "opens"),
    [
        (0.8, 1.05, "use fast instead of glibc: 20 % less time for 5.0 % more memory"),
        (0.8, 1.15, "use fast instead of glibc: 20 % less time for 15 % more memory"),
        (0.8, 1.25, "your choice, fast is faster and larger than glibc: 20 % less time for 25 % more memory"),
        (1.0, 1.3, "keep glibc: nothing measured is better by more than 3 %"),
    ],
)
def test_the_headline_weighs_memory(time: float, memory: float, opens: str) -> None:
    """Of one program and of several. +25 % are 2.4 MiB here: little, and more than what is gained."""
    alone, both = (card_of(*(job(name, {"fast": (time, memory)}) for name in names)) for names in ("a", "ab"))
    assert alone.sentence == opens
    if "keep" not in opens:
        assert both.sentence.startswith(opens.replace("time", "CPU")) and "adopt" in dict(both.lines)
    assert "within 4" not in f"{alone}{both}", "what is more is not the same"


def test_who_is_never_shown_worse_than_the_best_is_best_in_most() -> None:
    """Each program has another first, by chance: the one that is among the best of all of them is the answer."""
    ahead = {"a": (0.80, 0.801), "b": (0.801, 0.80), "c": (0.801, 0.80), "d": (0.7, 0.8)}
    jobs = [job(name, {"fast": (fast, 1.0), "lean": (lean, 1.0)}) for name, (fast, lean) in ahead.items()]
    found = card_of(*jobs)
    assert "equal memory" in found.sentence and found.rows[-1][5] == "among the best in 4 of 4 programs"


def test_a_ratio_that_is_not_known_within_3_per_cent_is_named() -> None:
    unclear = job("a", {"fast": (0.9, 1.0), "lean": (1.0, 1.0)})
    for sample in unclear.samples:
        sample.figures["wall"] *= 1 + sample.round * 11 % 7 / 30 * (sample.peer == "fast")
    lines = dict(card_of(unclear, job("b", {"lean": (1.0, 1.0)})).lines)
    assert lines["open"] == "a: not known within 3 %: fast"


def test_nothing_compared_is_no_card() -> None:
    assert card.of_result(result(job("a", {}), command=["freestone", "compare"])) is None
    render_report([result(job("a", {}), command=["freestone", "compare"])])


def test_a_suites_page_has_no_card() -> None:
    text = render_report([result(job("a", {"fast": (0.7, 1.0)}), command=["freestone", "bench", "quick"])])
    assert "Use fast instead" not in text


@pytest.mark.parametrize(("typed", "granted"), [(b"\n", 12.0), (b"q\n", 0.0)])
def test_enter_goes_on_and_anything_else_ends(typed: bytes, granted: float, monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, screen = pty.openpty()
    with os.fdopen(screen, "r+b", buffering=0) as raw, open(raw.fileno(), encoding="utf-8", closefd=False) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys, "stderr", open(raw.fileno(), "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        os.write(keyboard, typed)
        assert ask_for_more(10) == granted
        shown = os.read(keyboard, 1000)  # what was typed, and then the question
        while b"Enter goes on" not in shown:
            shown += os.read(keyboard, 1000)
    os.close(keyboard)


def test_nobody_is_asked_who_cannot_answer() -> None:
    assert ask_for_more(10) == 0.0


def test_an_interval_of_two_rounds_that_says_nothing_is_not_shown() -> None:
    assert claims.change(Estimate(0.82, 0.0, math.inf, 2, 0.3)) == "-18.0 %"
    assert claims.change(Estimate(0.82, 0.8, 0.85, 9, 0.03)) == "-18.0 % (-20.0 … -15.0)"


def test_a_ratio_never_seems_to_lie_outside_its_interval() -> None:
    assert (quantity.ratio_within(1.0249, 1.0247, 1.0352), quantity.span(1.0247, 1.0352)) == ("1.025", "1.025 to 1.035")
    assert (quantity.ratio_within(1.2, 0.96, 1.27), quantity.span(0.96, 1.27)) == ("1.20", "0.96 to 1.27")


def test_one_pair_of_runs_is_no_figure_and_makes_no_rival() -> None:
    """An allocator that ran in one round only had the baseline's own figures, as +0.0 %."""
    measured = job("app", {"lean": (1.1, 1.1)}, rounds=2)
    measured.samples += job("app", {"fast": (1.5, 2.0)}, rounds=1).samples[-1:]
    found = card_of(measured)
    assert found.rows[0][2] == "lean" and found.rows[0][3].startswith("+10.0 %")
    assert "fast (one run only)" in str(found) and "fast: " not in str(found) and "+0 %" not in str(found)
