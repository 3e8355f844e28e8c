"""The cost curve: which libraries are built, and what the table makes of their times."""

import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.docs import tables
from freestone_lab.workloads import mitigation_costs
from freestone_lab.workloads.suites import WEIGHTS


def test_every_bit_of_the_policy_has_a_library_and_needs_are_met() -> None:
    found = {v.name: v for v in mitigation_costs.variants(mitigation_costs.policy_text(paths.root()))}
    assert found["trailer"].bits == 1 and found["trailer"].base == "freestone"
    assert found["guards"].bits == 16 and found["guards"].base == "freestone"
    assert found["quarantine"].bits == 9 and found["quarantine"].base == "trailer"
    assert found["zero_size"].bits == 65 and found["zero_size"].base == "trailer"
    assert found["all"].bits == 127
    assert len(found) == 8


def test_a_policy_without_the_trailer_is_refused() -> None:
    with pytest.raises(UserError, match="no bit named 'trailer'"):
        mitigation_costs.variants("struct Mitigations {};")


def result_of(times: dict[str, float]) -> Result:
    samples = [Sample(p, r, "ok", figures={"pair_ns": t}) for p, t in times.items() for r in range(1, 5)]
    pair = Experiment("pair:size=64", "pair", specs={"pair_ns": FigureSpec("ns")}, samples=samples)
    sized = {p: {f"malloc_{size}": t * 2 for size in WEIGHTS} for p, t in times.items()}
    micro = Experiment(
        "micro:rounds=1",
        "micro",
        specs={f"malloc_{size}": FigureSpec("ns") for size in WEIGHTS},
        samples=[Sample(p, r, "ok", figures=f) for p, f in sized.items() for r in range(1, 5)],
    )
    return Result("2026-01-01", ["freestone", "bench"], 1, {}, [Peer(n, None) for n in times], [micro, pair])


def test_costs_are_ratios_to_the_fast_build_and_to_the_trailer() -> None:
    result = result_of({"glibc": 12.0, "freestone": 10.0, "trailer": 15.0, "quarantine": 18.0})
    composite, pair = mitigation_costs.costs(result)
    assert pair.ratios == pytest.approx({"glibc": 1.2, "freestone": 1.0, "trailer": 1.5, "quarantine": 1.8})
    assert composite.ratios["trailer"] == pytest.approx(1.5)
    text = tables.mitigations(result)
    assert "| `trailer` | 1.50 | 1.50 |" in text
    assert "| `quarantine` | 1.80 (+0.30) | 1.80 (+0.30) |" in text
    assert "| glibc | 1.20 | 1.20 |" in text
