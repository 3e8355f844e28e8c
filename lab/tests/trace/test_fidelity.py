"""How near replays come: what is measured, and what the table says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freestone_lab.core import paths
from freestone_lab.docs import fidelity_table
from freestone_lab.trace import corpus, fidelity, recording

BUILD = paths.build_dir()


@pytest.mark.skipif(not (BUILD / recording.REPLAYER).exists(), reason="the recorder and the replayer are not built")
def test_a_program_and_its_replay_make_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that holds a few MiB in blocks of 100 bytes."""
    code = 'my @k; push @k, "x" x 100 . $_ for 1..60000; print scalar @k'
    row = corpus.Row("perl", ("/usr/bin/perl", "-e", code), Path("/"), {})
    monkeypatch.setattr(corpus, "rows", lambda *_: [row])
    [found], failed = fidelity.measure(["perl"], 1, lambda _: None)
    assert not failed
    assert found.calls["program"] == pytest.approx(found.calls["replay"], rel=0.001)
    assert found.program["peak_kib"][0] == pytest.approx(found.replay["peak_kib"][0], rel=0.1)
    assert all("seconds" in figures for figures in (found.program, found.replay))


@pytest.mark.skipif(not (BUILD / recording.REPLAYER).exists(), reason="the recorder and the replayer are not built")
def test_a_program_that_fails_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {"sh": "exit 3", "bash": "for i in 1 2 3; do x=$x$i; done"}
    rows = [corpus.Row(name, ("/bin/bash", "-c", script), Path("/"), {}) for name, script in scripts.items()]
    monkeypatch.setattr(corpus, "rows", lambda *_: rows)
    made, failed = fidelity.measure(list(scripts), 1, lambda _: None)
    assert [row.name for row in made] == ["bash"]
    assert len(failed) == 1 and failed[0].startswith("sh: ") and "3" in failed[0]


def result(by: float) -> dict[str, Any]:
    program = {"seconds": [0.1, 0.2, 0.4], "peak_kib": [2048.0] * 3}
    replay = {name: [value * by for value in values] for name, values in program.items()}
    row = fidelity.Row("sh", {"program": 7, "replay": 7}, 0, program, replay)
    return fidelity.as_json([row], [], 3)


def test_the_table_counts_what_is_as_near_as_promised() -> None:
    near, far = (fidelity_table.table(result(by)).replace("\n", " ") for by in (1.04, 0.9))
    assert "within 5 % in 1 in time, in 1 in peak and in 1 in both" in near
    assert "within 5 % in 0 in time, in 0 in peak and in 0 in both" in far
    assert "| sh | 7 | 200.0 ms | -10.0% (-10% to -10%) | 2.0 MiB | - | -10.0% |" in far


def test_the_table_of_counts_says_how_many_are_near() -> None:
    rows = [fidelity.Counted("near", 1000, 1049), fidelity.Counted("far", 1000, 940)]
    text = fidelity_table.counts(fidelity.counts_as_json(rows, ["slow: status 1"])).replace("\n", " ")
    assert "Of 2 programs" in text and "within 5 %, in 1." in text
    assert "Not measured: slow: status 1." in text
    assert "| near | 1,000 | +4.9% |" in text and "| far | 1,000 | -6.0% |" in text
