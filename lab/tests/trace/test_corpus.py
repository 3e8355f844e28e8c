"""The corpus: at least twenty real programs, small, whole, and replayed to the last call by every allocator here."""

from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.trace import behaviour, corpus, events, recording, replaying

BUILD = paths.build_dir()
TRACES = sorted(corpus.folder().glob("*.fst"))
ALLOCATORS = [None, *(str(p) for p in (BUILD / "libfreestone.so", BUILD / "libfreestone-hardened.so") if p.exists())]


def test_there_are_twenty_programs_in_forty_mebibytes() -> None:
    sizes = [path.stat().st_size for path in TRACES]
    assert len(sizes) >= 20 and max(sizes) <= 2 << 20 and sum(sizes) <= 40 << 20


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_trace_is_whole_and_has_at_most_four_bytes_an_event(path: Path) -> None:
    trace = events.read(path)
    count = len(trace.rows)
    assert count >= corpus.LEAST_EVENTS and path.stat().st_size <= 4 * count
    assert trace.meta["program"] == path.stem and not len(trace.frames)


@pytest.mark.skipif(not (BUILD / recording.REPLAYER).exists(), reason="the replayer is not built")
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_every_allocator_makes_the_same_calls(path: Path) -> None:
    way = replaying.Way(idle_ms=0)
    words = replaying.command(replaying.make_plan(path, way), way)
    found = [replaying.replay(words, preload) for preload in ALLOCATORS]
    assert len({(run["calls"], run["checksum"]) for run in found}) == 1
    assert all(run["failures"] == 0 and run["dropped"] == 0 for run in found)


def test_an_unknown_trace_is_named() -> None:
    with pytest.raises(UserError, match="the corpus has no trace 'nosuch'"):
        corpus.traces(["nosuch"])


def test_the_page_about_a_trace_knows_sizes_lifetimes_and_the_bound() -> None:
    found = behaviour.describe(events.read(corpus.traces(["lua"])[0]))
    assert all(not bars.shares or abs(sum(bars.shares) - 1) < 1e-6 for bars in found.bars)
    assert found.least_pages_kib >= found.peak_live_kib and len(found.live) > 100
    assert abs(sum(map(sum, found.grids[1].shares)) - 1) < 1e-6
