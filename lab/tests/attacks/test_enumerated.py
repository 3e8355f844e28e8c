"""The attack suite: the program's verdicts become a result, and the result a table."""

import subprocess
from pathlib import Path

import pytest

from freestone_lab.attacks import enumerated
from freestone_lab.core.result import Peer, Result
from freestone_lab.docs import tables
from freestone_lab.peers import discover

ROW = {"seen": 6, "trapped": 2, "held": 1, "missed": 1, "twins_failed": 0, "failed_before": 0}


def result_of(rows: dict[str, dict[str, dict[str, int]]]) -> Result:
    """Kind to peer to what differs from ROW."""
    peers = dict.fromkeys(name for by_peer in rows.values() for name in by_peer)
    result = Result("", ["freestone", "bench", "attacks"], 1, {}, [Peer(name, None) for name in peers])
    for kind, by_peer in rows.items():
        experiment = enumerated._experiment(kind, 10, 1)
        for peer in result.peers:
            if peer.name in by_peer:
                experiment.samples.append(enumerated._sample(peer, {**ROW, **by_peer[peer.name]}))
        result.experiments.append(experiment)
    return result


def test_the_worst_kind_of_the_first_allocator_comes_first_and_no_miss_is_rounded_away() -> None:
    result = result_of(
        {
            "good": {"a": {"missed": 0}, "b": {"missed": 91}},
            "nearly": {"a": {"seen": 1990}, "b": {}},
            "bad": {"a": {"missed": 11}, "b": {"missed": 0}},
        }
    )
    grid = enumerated.grid(result)
    assert grid.rows[:3] == [("bad", "45", "100"), ("nearly", "99", "90"), ("good", "100", "9")]
    assert grid.rows[3:] == [("the worst kind", "45", "9")]


def test_a_failed_twin_is_said_and_an_unjudged_allocator_is_no_good_one() -> None:
    result = result_of({"kind": {"a": {"twins_failed": 2}, "b": {"failed_before": 1}}})
    result.peers.append(Peer("absent", None))
    result.fingerprint["not_judged"] = {"absent": "does not start"}
    text = tables.attacks(result)
    assert "| kind | 90 | 90 | - |" in text
    assert "a: 2 harmless twins failed" in text and "b: 1 harmless twins failed" in text
    assert "absent: not judged: does not start" in text


def test_an_allocator_without_checks_stops_no_second_free(controls: dict[str, Peer]) -> None:
    result = enumerated.run([controls["null"], discover.find("glibc")], rounds=8, seed=1, kind="double free, seen")
    shares = enumerated.kinds(result)["double free, seen by the end"]
    assert shares["null"] < 0.5 < shares["glibc"]


def test_an_allocator_that_dies_at_start_or_serves_nothing_gets_no_marks(controls: dict[str, Peer]) -> None:
    chosen = [controls["crashing"], controls["not-loading"]]
    result = enumerated.run(chosen, rounds=2, seed=1, kind="size too large")
    assert not result.experiments
    assert "dies of signal" in result.fingerprint["not_judged"]["crashing"]
    assert "malloc is served by" in result.fingerprint["not_judged"]["not-loading"]


def test_no_twin_of_any_kind_fails_under_glibc() -> None:
    result = enumerated.run([discover.find("glibc")], rounds=2, seed=3)
    assert not enumerated.false_alarms(result)
    assert 0 < sum(shares["glibc"] == 1 for shares in enumerated.kinds(result).values()) < len(result.experiments)


ACCUSES = """
#include <stdlib.h>
void __libc_free(void*);
void free(void* block) { static int frees; if (++frees > 40) abort(); __libc_free(block); }
void* __libc_malloc(size_t); void* malloc(size_t bytes) { return __libc_malloc(bytes); }
"""


def test_accusing_a_correct_program_is_a_false_alarm(tmp_path: Path) -> None:
    library = tmp_path / "libaccuses.so"
    command = ["cc", "-shared", "-fPIC", "-fno-builtin", "-xc", "-", "-o", str(library)]
    subprocess.run(command, input=ACCUSES.encode(), check=True)
    result = enumerated.run([Peer("accuses", str(library))], rounds=8, seed=1, kind="double free after")
    assert enumerated.false_alarms(result)["accuses"] > 0


def test_the_program_judges_glibc() -> None:
    result = enumerated.run([discover.find("glibc")], rounds=3, seed=5, kind="size too large")
    assert enumerated.kinds(result) == {"size too large": {"glibc": 1.0}}
    assert not enumerated.false_alarms(result)


def test_what_ran_before_does_not_change_a_verdict() -> None:
    def counts(kind: str) -> dict[str, int]:
        result = enumerated.run([discover.find("freestone")], rounds=8, seed=13, kind=kind)
        return next(e.samples[0].counts for e in result.experiments if e.id.endswith("by two threads"))

    assert counts("double free by two threads") == counts("double free")


def test_a_kind_without_any_judged_attack_has_no_share() -> None:
    with pytest.raises(KeyError):
        _ = enumerated._sample(Peer("a", None), {**ROW, **dict.fromkeys(ROW, 0)}).figures["stopped"]
