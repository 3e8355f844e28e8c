"""The table of what recording costs, from a report of pytest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.docs import recording_table
from freestone_lab.trace import corpus, recording, recording_cost

CASE = '<testcase name="{}"><properties><property name="cost" value="{}"/></properties></testcase>'


def report(names: list[str]) -> str:
    cases = "".join(CASE.format(name, "1.250 0.900 1.100") for name in names)
    return f'<testsuites><testsuite><testcase name="test_another"/>{cases}</testsuite></testsuites>'


def test_each_program_has_its_middle_and_its_extremes() -> None:
    lines = recording_table.table(report(list(recording_table.NAMES))).splitlines()[2:]
    assert [line.split(" | ", 1)[1] for line in lines] == ["1.10 | 0.90 to 1.25 | 3 |"] * 3


def test_a_report_without_one_of_the_tests_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected the property 'cost' of test_a_server_hardly_notices\[redis\]"):
        recording_table.table(report(list(recording_table.NAMES)[1:]))


def test_the_cost_as_a_whole_is_the_range_of_medians(tmp_path: Path) -> None:
    """The page said one range, and its table gave another."""
    rows = [
        recording_cost.Row("slow", [1.0, 1.0, 2.0], [2.5, 3.0, 5.0]),
        recording_cost.Row("fast", [1.0, 1.0, 1.0], [1.4, 1.6, 1.5]),
    ]
    stored = tmp_path / "whole.json"
    stored.write_text(json.dumps(recording_cost.as_json(rows, [], 3)))
    text = recording_table.whole(stored)
    assert "is 1.5 to 2.5 times the program's, medians of 3 rounds" in " ".join(text.split())
    assert "| slow | 1.00 | 3.00 | 2.50 | 2.50 to 3.00 |" in text


@pytest.mark.skipif(not (paths.build_dir() / recording.WRITER).exists(), reason="the recorder is not built")
def test_the_cost_as_a_whole_counts_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer's time is several times what a program pays that only allocates."""
    code = "my @k; for my $i (1..200000) { push @k, $i . 'x' } print scalar @k"
    row = corpus.Row("perl", ("/usr/bin/perl", "-e", code), Path("/"), {})
    monkeypatch.setattr(corpus, "rows", lambda *_: [row])
    [found], failed = recording_cost.measure_all(["perl"], 2, lambda _: None)
    assert not failed and len(found.alone) == len(found.recorded) == 2
    assert min(recording_cost.ratios(found)) > 1.1, found
