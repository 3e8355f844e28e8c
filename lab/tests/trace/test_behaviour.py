"""The page about a trace."""

from __future__ import annotations

from freestone_lab.trace import behaviour, corpus, events


def test_the_page_knows_sizes_lifetimes_and_the_bound() -> None:
    trace = events.read(corpus.traces(["lua"])[0])
    found = behaviour.describe(trace)
    for bars in found.bars:
        assert not bars.shares or abs(sum(bars.shares) - 1) < 1e-6
    assert found.least_pages_kib >= found.peak_live_kib and len(found.live) > 100
    assert abs(sum(map(sum, found.grids[1].shares)) - 1) < 1e-6
