"""What docs/LAB.md says of the lab's own errors."""

from __future__ import annotations

import json
from pathlib import Path

from freestone_lab.analysis.calibration import STAYING, Coverage, Judgement
from freestone_lab.core import paths
from freestone_lab.docs import known_costs_table
from freestone_lab.docs.pages import with_section
from freestone_lab.workloads.cost_trials import BOTH, REAL, Rates


def test_the_worst_coverage_and_the_rates_of_each_noise_are_shown(tmp_path: Path) -> None:
    coverage = [
        Coverage("paired", "normal", 5, 100, 100, 99), Coverage("paired", "drift", 9, 100, 50, 48),
        Coverage("over workloads", "normal", 5, 100, 0, 0), Coverage("over workloads", "normal", 6, 100, 100, 97),
        Coverage("paired", "drift", 60, 100, 100, 97), Coverage("paired", STAYING, 5, 100, 100, 90),
    ]  # fmt: skip
    judgements = [
        Judgement("nothing", "normal", "compare", 10, {"right": 9, "open": 1}, {"right": 10}, 12.0),
        Judgement("+1 % CPU", "normal", "compare", 30, {"right": 29, "wrong": 1}, {"open": 3, "right": 27}, 20.0),
        Judgement("nothing", REAL, BOTH, 4, {"open": 4}, {"right": 4}, 40.0),
    ]
    path = tmp_path / "known.json"
    path.write_text(json.dumps(Rates(coverage, judgements).stored()))
    text = known_costs_table.table(path)
    said = " ".join(text.split())
    assert "in paired 96.7 % (96.0 %), over workloads 97.0 % (97.0 %) of the intervals" in said
    assert "it lies in paired 90.0 % (90.0 %): no interval" in said
    assert "| compare: normal | 40 | 2.5 % | 2.5 % | 0.0 % | 7.5 % | 18 |" in text
    assert f"| {BOTH}: {REAL} | 4 | 0.0 % | 100.0 % | 0.0 % | 0.0 % | 40 |" in text


def test_the_page_has_a_place_for_it() -> None:
    page = (paths.root() / known_costs_table.DOCUMENT).read_text()
    assert "x" in with_section(page, known_costs_table.DOCUMENT, "known costs", "x")
