"""The replayer: the same calls under any allocator, in the recorded order, and one clear error for a damaged trace."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peers_tools import compiled
from trace_tools import BUILD, BUILT, HEADER, PROGRAM, REPLAYER, record, with_right_checksums

from freestone_lab.analysis import claims
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.engine.experiment import Engine
from freestone_lab.engine.plan import Plan
from freestone_lab.measure import share
from freestone_lab.trace import corpus, events, replaying
from freestone_lab.trace.describe import Kind
from freestone_lab.workloads import apps

pytestmark = BUILT
Recorded = Callable[..., Path]
OTHERS = [str(path) for path in (BUILD / "libfreestone.so", BUILD / "libfreestone-hardened.so") if path.exists()]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    known: dict[tuple[str, ...], Path] = {}

    def make(*words: str) -> Path:
        if words not in known:
            known[words] = record(tmp_path_factory.mktemp("traces") / "t.fst", str(PROGRAM), *words)
        return known[words]

    return make


def plan(trace: Path, *options: str) -> Path:
    made = trace.with_suffix(".plan")
    subprocess.run([REPLAYER, "plan", *options, trace, made], check=True)
    return made


def run(made: Path, *options: str, preload: str | None = None) -> dict[str, Any]:
    words = [str(REPLAYER), "run", "--idle-ms", "0", *options, str(made)]
    return replaying.replay(words, preload)


def calls_of(trace: Path) -> int:
    return int((events.read(trace).rows["kind"] <= Kind.LOST_FREE).sum())


@pytest.mark.parametrize(
    "words", [("every-kind",), ("hand-over", "30000"), ("threads", "40"), ("churn", "3000"), ("signals", "20000")]
)
def test_two_replays_make_the_recorded_calls_under_every_allocator(recorded: Recorded, words: tuple[str, ...]) -> None:
    trace = recorded(*words)
    made = plan(trace)
    first = run(made)
    assert first["calls"] == calls_of(trace) and first["failures"] == 0 and first["dropped"] == 0
    for preload in (None, *OTHERS):
        again = run(made, preload=preload)
        assert (again["calls"], again["checksum"], again["failures"]) == (first["calls"], first["checksum"], 0)
        if preload:
            assert Path(again["malloc_owner"]).samefile(preload)


def test_a_replay_finds_the_heap_as_a_program_does(recorded: Recorded, tmp_path: Path) -> None:
    """No call of the replayer's own stands before or among the recorded ones, but what libstdc++ makes at its start."""
    trace = recorded("churn", "3000")
    own = record(tmp_path / "own.fst", str(REPLAYER), "run", "--idle-ms", "0", str(plan(trace)))
    both = [events.read(path).thread(0) for path in (trace, own)]
    made, remade = (rows["size"][events.births(rows)] for rows in both)
    ended, freed = (int(events.ends(rows).sum()) for rows in both)
    extra = remade.size - made.size
    assert remade[extra:].tolist() == made.tolist() and extra <= 1 and freed == ended + extra


def test_a_program_and_its_replay_make_the_same_calls_and_hold_as_much(tmp_path: Path) -> None:
    """A program that holds a few MiB in blocks of 100 bytes. The figures beside the replay's are its own run's."""
    row = apps.Command("perl", "perl", ("/usr/bin/perl", "-e", 'push @k, "x" x 100 . $_ for 1..60000'), Path("/"))
    corpus.record_whole(row, tmp_path / "perl.fst")
    env = {**os.environ, "LD_PRELOAD": str(share.library()), share.VARIABLE: str(tmp_path / "said")}
    subprocess.run(row.argv, env=env, check=True, capture_output=True)
    [alone] = share.lines(tmp_path / "said")
    again = run(plan(tmp_path / "perl.fst"))
    assert again["calls"] == pytest.approx(alone["calls"], rel=0.001)
    assert again["figures"]["rss"]["value"] == pytest.approx(alone["peak_kib"], rel=0.1)


def test_another_trace_has_another_checksum(recorded: Recorded) -> None:
    assert run(plan(recorded("churn", "3000")))["checksum"] != run(plan(recorded("churn", "3001")))["checksum"]


def test_pages_that_the_program_did_not_use_are_not_touched(recorded: Recorded) -> None:
    figures = run(plan(recorded("partly-used")))["figures"]
    assert 3500 < figures["rss"]["value"] < 5500


def test_a_child_is_replayed_with_what_its_parent_made(recorded: Recorded) -> None:
    trace = recorded("fork", "50")
    child = run(plan(trace, "--process", "1"))
    assert child["dropped"] == 0 and child["failures"] == 0
    kinds = events.read(trace).thread(0)["kind"]
    before = kinds[: int((kinds == Kind.FORK).argmax())]
    made_before = int((before <= Kind.LOST_FREE).sum())
    assert child["calls"] == made_before + 50 + 10


def test_threads_become_fewer_or_copies(recorded: Recorded) -> None:
    trace = recorded("hand-over", "30000")
    one = run(plan(trace, "--threads", "1"))
    assert one["params"]["threads"] == 1 and one["dropped"] == 0 and one["calls"] == calls_of(trace)
    many = run(plan(trace), "--copies", "3")
    assert many["calls"] == 3 * calls_of(trace) and many["failures"] == 0


def test_the_recorded_pace_is_kept(recorded: Recorded) -> None:
    trace = recorded("partly-used")
    made = plan(trace)
    assert run(made, "--pace", "1.0")["figures"]["replay"]["value"] >= 0.35
    assert min(run(made)["figures"]["replay"]["value"] for _ in range(9)) < 0.35  # a busy machine stops one for long


def test_without_an_allocator_the_calls_are_the_same(recorded: Recorded) -> None:
    made = plan(recorded("hand-over", "30000"))
    assert run(made, "--null")["checksum"] == run(made)["checksum"]


def refused(path: Path) -> str:
    done = subprocess.run([REPLAYER, "plan", path, path.with_suffix(".plan")], capture_output=True, text=True)
    assert done.returncode == 2, f"status {done.returncode}: {done.stderr}"
    return done.stderr


@pytest.mark.all
def test_every_flipped_byte_and_every_cut_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    data = recorded("every-kind").read_bytes()
    damaged = tmp_path / "damaged.fst"
    for place in range(len(data)):
        damaged.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        assert "damaged.fst: at byte " in refused(damaged)
        damaged.write_bytes(data[:place])
        assert "damaged.fst: at byte " in refused(damaged)


@pytest.mark.all
def test_damage_under_right_checksums_is_an_error_or_another_trace(recorded: Recorded, tmp_path: Path) -> None:
    data = recorded("every-kind").read_bytes()
    damaged = tmp_path / "damaged.fst"
    for place in range(HEADER.size, len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x15
        damaged.write_bytes(with_right_checksums(changed))
        for words in (("plan", damaged, damaged.with_suffix(".plan")), ("rows", damaged)):
            done = subprocess.run([REPLAYER, *words], capture_output=True)
            assert done.returncode in (0, 2), f"byte {place}: status {done.returncode}"
            assert done.returncode == 0 or b"damaged.fst: " in done.stderr


def test_a_damaged_plan_is_refused(recorded: Recorded, tmp_path: Path) -> None:
    data = plan(recorded("churn", "3000")).read_bytes()
    damaged = tmp_path / "damaged.plan"
    for place in (0, 8, 20, 130, len(data) // 2, len(data) - 1):
        damaged.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        done = subprocess.run([REPLAYER, "run", damaged], capture_output=True, text=True)
        assert done.returncode == 2 and "no plan of this replayer" in done.stderr


def test_a_trace_becomes_an_experiment(recorded: Recorded) -> None:
    task = replaying.task(recorded("hand-over", "30000"), replaying.Way(threads=5))
    assert task.params["threads"] == 6 and "--copies" in task.argv  # three copies of two threads
    assert "less what the same replay takes without an allocator" in task.caveats[0]
    printed = json.loads(subprocess.run(task.argv, capture_output=True, text=True, check=True).stdout)
    assert printed["schema"] == "freestone-workload/1" and printed["calls"] == task.params["calls"]


def test_time_is_that_of_the_whole_replay_less_its_own(recorded: Recorded) -> None:
    made = plan(recorded("partly-used"))
    said, alone = run(made), run(made, "--null")
    assert said["figures"]["whole"]["value"] == pytest.approx(said["cpu_s"] - said["own_s"], abs=1e-6)
    own, all_ = (figures["figures"]["faults"]["value"] for figures in (alone, said))
    assert own < 50 < 1000 < all_, "first touches are the allocator's, none the replay's own"
    assert said["own_s"] < said["cpu_s"] / 2, "most of this replay is first touches"


STARTS = """
#include <stdlib.h>
#include <string.h>
static char held[8 << 20];
__attribute__((constructor)) static void start(void) { memset(held, 1, sizeof held); }
void* malloc(size_t);
"""


def test_memory_that_an_allocator_takes_at_its_start_counts(recorded: Recorded, tmp_path: Path) -> None:
    library = compiled(tmp_path / "starts.so", STARTS)
    words = replaying.task(recorded("churn", "3000"), replaying.Way(idle_ms=0)).argv
    plain, started = (replaying.replay(words, preload)["figures"] for preload in (None, str(library)))
    for name in ("rss", "rss_mean"):
        more = started[name]["value"] - plain[name]["value"]
        assert (8 << 10) - 64 < more < (8 << 10) + 512, name


def test_the_headline_is_the_whole_replay_and_the_peak(recorded: Recorded) -> None:
    task = replaying.task(recorded("partly-used"), replaying.Way(idle_ms=0))
    found = Engine(task, [Peer("glibc", None, "libc")], "glibc", Plan(rounds=1), lambda _: None).measure()
    assert claims.headline(found) == ["whole", "rss"]


def test_what_is_no_trace_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.fst"
    wrong.write_text("hello")
    with pytest.raises(UserError, match=r"wrong\.fst: at byte 0"):
        replaying.task(wrong, replaying.Way())
