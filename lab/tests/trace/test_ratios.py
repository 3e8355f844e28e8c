"""What replays foretell of their programs under other allocators, and what the table says of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.docs import fidelity_table
from freestone_lab.trace import corpus, ratios, recording
from freestone_lab.trace.ratios import Row, Values

ROUNDS = 6
REAL = {"glibc": (1.0, 20e3), "fast": (0.8, 20e3), "lean": (1.0, 15e3), "large": (0.9, 40e3), "twin": (1.0, 20e3)}


def values(of: dict[str, tuple[float, float]]) -> Values:
    """Rounds that differ by some per mille, each allocator's in its own way."""
    bend = {name: [1 + ((n * 7 + k * 3) % 5 - 2) / 1000 for n in range(ROUNDS)] for k, name in enumerate(of)}
    return {
        name: {"cpu_s": [cpu * b for b in bend[name]], "peak_kib": [kib * b for b in bend[name]]}
        for name, (cpu, kib) in of.items()
    }


def replay(share: float, own_kib: float = 0.0) -> dict[str, tuple[float, float]]:
    """A replay that takes the program's differences and no more of its time than `share`."""
    return {name: (cpu - 1 + share, kib - own_kib) for name, (cpu, kib) in REAL.items()}


def test_a_replay_that_has_the_programs_differences_foretells_it() -> None:
    row = Row("sh", values(REAL), values(replay(0.3, 5e3)))
    for figure in ratios.FIGURES:
        found = ratios.kept(row, figure)
        assert found.agree == found.told_apart > 0 and found.tau == 1
        assert max(found.errors) < 0.02, found
    assert ratios.foretold(row, "cpu_s")["fast"] == pytest.approx(0.8, rel=0.01)


def test_allocators_that_the_program_does_not_tell_apart_have_no_order() -> None:
    found = ratios.kept(Row("sh", values(REAL), values(REAL)), "cpu_s")
    assert found.told_apart == 7  # of ten pairs; glibc, lean and twin take the same
    assert found + found == ratios.Kept(14, 14, found.errors * 2)


def test_a_replay_that_turns_the_order_round_is_seen() -> None:
    turned = {name: (2 - cpu, 60e3 - kib) for name, (cpu, kib) in REAL.items()}
    found = ratios.kept(Row("sh", values(REAL), values(turned)), "cpu_s")
    assert found.agree == 0 and found.tau == -1
    assert max(found.errors) == pytest.approx(math.log(1.2 / 0.8), abs=0.02)


def test_the_table_says_tau_and_the_error_of_ratios() -> None:
    rows = [Row("sh", values(REAL), values(replay(0.3)))]
    peers = [Peer(name, None, version="1.0") for name in REAL]
    text = fidelity_table.ratios_table(ratios.as_json(rows, ["slow: status 1"], peers, ROUNDS))
    words = " ".join(text.split())
    assert (
        "In time the programs tell 7 pairs of allocators apart, and their replays put 7 of these in the same" in words
    )
    assert "tau 1.00" in words and "Not measured: slow: status 1." in words and "large 1.0" in words
    assert "| sh | 1000 ms | 7 | 7 | " in text and "| 19.5 MiB | " in text


def test_fewer_than_five_allocators_are_too_few() -> None:
    with pytest.raises(UserError, match="ratios take 5"):
        ratios.measure_all(["sh"], [Peer("glibc", None)], 1, lambda _: None)


@pytest.mark.skipif(not (paths.build_dir() / recording.REPLAYER).exists(), reason="the replayer is not built")
def test_program_and_replay_run_under_each_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'my @k; push @k, "x" x 100 . $_ for 1..60000; print scalar @k'
    row = corpus.Row("perl", ("/usr/bin/perl", "-e", code), Path("/"), {})
    monkeypatch.setattr(corpus, "rows", lambda *_: [row])
    peers = [Peer(name, None, "libc") for name in ("glibc", "a", "b", "c", "d")]  # glibc's, five times
    [found], failed = ratios.measure_all(["perl"], peers, 2, lambda _: None)
    assert not failed and found.program.keys() == found.replay.keys() == {p.name for p in peers}
    assert all(
        len(v) == 2 and min(v) > 0 for of in (found.program, found.replay) for p in of.values() for v in p.values()
    )
    assert max(ratios.kept(found, "peak_kib").errors) < 0.05, "one allocator takes what it takes"
