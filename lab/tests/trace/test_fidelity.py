"""How near replays come: what is measured, and what the table says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freestone_lab.core import paths
from freestone_lab.docs import fidelity_table
from freestone_lab.measure import counts
from freestone_lab.trace import corpus, fidelity, likeness, recording

BUILD = paths.build_dir()


@pytest.mark.skipif(not (BUILD / recording.REPLAYER).exists(), reason="the recorder and the replayer are not built")
def test_a_program_its_replay_and_its_model_make_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that holds a few MiB in blocks of 100 bytes."""
    code = 'my @k; push @k, "x" x 100 . $_ for 1..60000; print scalar @k'
    row = corpus.Row("perl", ("/usr/bin/perl", "-e", code), Path("/"), {})
    monkeypatch.setattr(corpus, "rows", lambda *_: [row])
    [found], failed = fidelity.measure(["perl"], 1, lambda _: None)
    assert not failed
    assert found.calls["program"] == pytest.approx(found.calls["replay"], rel=0.001)
    assert found.calls["model"] == pytest.approx(found.calls["replay"], rel=0.01)
    assert found.program["peak_kib"][0] == pytest.approx(found.replay["peak_kib"][0], rel=0.1)
    assert all("seconds" in figures for figures in (found.program, found.replay, found.model))


@pytest.mark.skipif(not (BUILD / recording.REPLAYER).exists(), reason="the recorder and the replayer are not built")
def test_a_program_that_fails_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {"sh": "exit 3", "bash": "for i in 1 2 3; do x=$x$i; done"}
    rows = [corpus.Row(name, ("/bin/bash", "-c", script), Path("/"), {}) for name, script in scripts.items()]
    monkeypatch.setattr(corpus, "rows", lambda *_: rows)
    made, failed = fidelity.measure(list(scripts), 1, lambda _: None)
    assert [row.name for row in made] == ["bash"]
    assert len(failed) == 1 and failed[0].startswith("sh: ") and "3" in failed[0]


def result(replay: float, model: float) -> dict[str, Any]:
    program = {"seconds": [0.1, 0.2, 0.4], "peak_kib": [2048.0] * 3}
    figures = [{"seconds": [v * by for v in program["seconds"]], "peak_kib": [2048 * by] * 3} for by in (replay, model)]
    for each in figures:
        each["mean_kib"] = each["peak_kib"]
    row = fidelity.Row("sh", {"program": 7, "replay": 7, "model": 7}, 0, program, *figures)
    return fidelity.as_json([row], [], 3)


def test_the_table_counts_what_is_as_near_as_promised() -> None:
    near, far = (fidelity_table.table(result(*by)).replace("\n", " ") for by in ((1.04, 1.1), (0.9, 1.2)))
    assert (
        "within 5 % in 1 in time, in 1 in peak and in 1 in both" in near
        and "in 1 in time, in 1 in peak and in 1 in mean" in near
    )
    assert (
        "within 5 % in 0 in time, in 0 in peak and in 0 in both" in far
        and "in 0 in time, in 0 in peak and in 0 in mean" in far
    )
    assert "| sh | 7 | 200.0 ms | -10.0% (-10% to -10%) | 2.0 MiB | - | -10.0% |" in far


def test_the_table_of_counts_says_how_many_are_near() -> None:
    rows = [fidelity.Counted("near", 1000, 1049), fidelity.Counted("far", 1000, 940)]
    text = fidelity_table.counts(fidelity.counts_as_json(rows, ["slow: status 1"])).replace("\n", " ")
    assert "Of 2 programs" in text and "within 5 %, in 1." in text
    assert "Not measured: slow: status 1." in text
    assert "| near | 1,000 | +4.9% |" in text and "| far | 1,000 | -6.0% |" in text


@pytest.mark.skipif(not (BUILD / recording.REPLAYER).exists(), reason="the replayer is not built")
def test_a_model_is_measured_beside_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "by_process", lambda *_: [7, 11])  # callgrind takes seconds
    row = likeness.measure(["vim"], lambda _: None)[0]
    assert set(row.trace) == set(row.model) == set(likeness.FIGURES)
    assert row.trace["instructions"] == 11 and 0 < row.model_bytes < row.trace_bytes
    assert row.model["calls"] == pytest.approx(row.trace["calls"], rel=0.01)


def test_the_table_of_models_names_every_program_the_farthest_first() -> None:
    one = dict.fromkeys(likeness.FIGURES, 1000.0)
    models = {"near": {**one, "rss": 1099.0}, "far": {**one, "rss_mean": 880.0}, "uncounted": {**one}}
    del models["uncounted"]["instructions"]
    rows = [likeness.Row(name, 4096, 1024, one, model) for name, model in models.items()]
    text = fidelity_table.models(likeness.as_json(rows))
    words = " ".join(text.split())
    assert "Of 3 models 2 are within 10 %" in words and "3 in resident peak, 2 in resident mean" in words
    assert "2 in instructions" in words
    assert [line.split()[1] for line in text.splitlines()[-3:]] == ["far", "near", "uncounted"]
    assert text.endswith("| - |")
