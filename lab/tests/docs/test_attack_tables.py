"""The attack tables of docs/HARDENING.md: what they count, and that the committed ones come from the stored results."""

from __future__ import annotations

import re

import pytest

from freestone_lab.attacks import tables
from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Result, Sample
from freestone_lab.core.result_file import load
from freestone_lab.docs import attack_tables


def result_of(counts: dict[str, dict[str, dict[str, int]]], caveats: list[str]) -> Result:
    """experiment to peer to counts"""
    experiments = [
        Experiment(
            f"attacks/{family}",
            "attacks",
            {"seeds": 4, "pairs": 1, "examples": {}},
            samples=[Sample(peer, 0, "ok", counts=found) for peer, found in peers.items()],
            caveats=caveats if family == "apart" else [],
        )
        for family, peers in counts.items()
    ]
    return Result("2026-01-01", ["freestone"], 1, {}, [Peer("freestone-hardened", None)], experiments)


def test_misses_are_counted_by_reason_and_those_apart_are_left_out() -> None:
    found = {
        "double-free": {
            "freestone-hardened": {
                "double_free_stale_1/large=late": 1,
                "double_free_stale_1/large=reported": 3,
                "double_free_immediate/small=reported": 4,
            }
        },
        "apart": {"freestone-hardened": {"overread_1/small=missed": 4}},
    }
    text = attack_tables.misses(result_of(found, []))
    assert text.startswith("1 of 8 runs (4 of each case and size")
    assert "`double_free_stale_1`, large: 1 |" in text
    assert "overread" not in text and "immediate" not in text


def test_cases_apart_come_with_their_reason_and_share() -> None:
    found = {
        "apart": {"freestone-hardened": {"overread_1/small=missed": 3, "overread_1/small=trapped": 1}},
        "overflow": {"freestone-hardened": {"overflow_store_1/small=reported": 4}},
    }
    text = attack_tables.apart(result_of(found, ["overread_1: a read leaves no trace: so it is"]))
    assert "| `overread_1` 25 | a read leaves no trace: so it is |" in text
    assert "overflow" not in text


def test_fast_build_stands_beside_glibc_by_size() -> None:
    found = {
        "overflow": {
            "freestone": {"a/small=missed": 3, "a/small=reported": 1, "b/large=trapped": 2},
            "glibc": {"a/small=reported": 4, "b/large=not_applicable": 4},
        }
    }
    assert "| overflow | 25 / 100 |  | 100 / - |  |" in attack_tables.fast_against_glibc(result_of(found, []))


def test_a_miss_without_a_reason_stops_the_documents() -> None:
    with pytest.raises(UserError, match="overflow_store_1/small: got through"):
        attack_tables.reason_of("overflow_store_1/small")


def test_readme_and_roadmap_state_the_stored_shares() -> None:
    root = paths.root()
    result = load(root / attack_tables.SEEDS)

    def share(name: str) -> str:
        found = tables.defended_share(result, name)
        assert found is not None
        return tables.percent(found)

    readme = re.sub(r"\s+", " ", (root / "README.md").read_text())
    assert f"hardened library defends against {share('freestone-hardened')} of" in readme
    for word, name in (("hardened_malloc", "hardened-malloc"), ("scudo", "scudo"), ("glibc", "glibc")):
        assert f"{word} {share(name)}" in readme
    roadmap = (root / "docs" / "ROADMAP.md").read_text()
    assert f"| {share('freestone')}; glibc {share('glibc')} |" in roadmap
