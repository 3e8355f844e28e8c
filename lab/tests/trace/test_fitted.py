"""Models of traces, and the page about one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.trace import (
    behaviour,
    corpus,
    figures,
    fitted,
    foreign,
    layout,
    reader,
    recording,
    replaying,
    writer,
)
from freestone_lab.trace.events import Events, Trace
from freestone_lab.trace.layout import Kind

BUILD = paths.build_dir()


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("lua", "jq", "redis", "perl")]


@pytest.mark.parametrize("name", ["gdb", "vim", "openssl", *LONG])
def test_a_model_holds_as_much_live_memory_as_its_trace(name: str, tmp_path: Path) -> None:
    trace = reader.read(corpus.traces([name])[0])
    path = tmp_path / "m.model"
    assert fitted.save(fitted.fit(trace), path) <= fitted.MOST_BYTES
    made = fitted.generate(fitted.load(path))
    writer.write(made, tmp_path / "m.fst")
    again = reader.read(tmp_path / "m.fst")  # it passes every check
    changes = [figures.changes(t, 0) for t in (again, trace)]
    peak, wanted = (int(change.live_bytes.max()) for change in changes)
    assert abs(peak / wanted - 1) < 0.1
    # Over time, so that pauses count.
    mean, wanted = (int((c.live_bytes[:-1] * np.diff(c.times)).sum()) for c in changes)
    assert abs(mean / wanted - 1) < 0.1
    births = [sum(int((e.births >= 0).sum()) for e in t.threads.values()) for t in (again, trace)]
    assert births[0] == births[1]
    if (BUILD / recording.REPLAYER).exists():
        way = replaying.Way(idle_ms=0)
        found = replaying.replay(replaying.command(replaying.make_plan(path, way), way))
        assert found["failures"] == 0 and found["dropped"] == 0


def test_a_bounded_model_is_coarser_and_makes_the_same_births() -> None:
    trace = reader.read(corpus.traces(["gdb"])[0])
    fine, coarse = fitted.fit(trace), fitted.fit(trace, 12 << 10)
    assert len(fitted.packed(coarse)) <= 12 << 10 < len(fitted.packed(fine))
    assert len(coarse["edges"]) < len(fine["edges"])
    births = [sum(int((e.births >= 0).sum()) for e in fitted.generate(m).threads.values()) for m in (fine, coarse)]
    assert births[0] == births[1]


def test_a_realloc_continues_a_block_of_the_size_that_it_continued(tmp_path: Path) -> None:
    """Blocks of 16 bytes grow to 32, those of 500 to 900, in one phase."""
    lines = ["= Start"]
    for i in range(2000):
        a, b = 0x10000 + 0x1000 * (i % 8), 0x90000 + 0x1000 * (i % 8)
        small, large = (0x10, 0x20), (500, 900)
        for at, (before, after) in ((a, small), (b, large)):
            lines += [f"@ a:[0x1] + {at:#x} {before:#x}", f"@ a:[0x1] < {at:#x}", f"@ a:[0x1] > {at + 8:#x} {after:#x}"]
            lines += [f"@ a:[0x1] - {at + 8:#x}"]
    (tmp_path / "m.txt").write_text("\n".join([*lines, "= End"]) + "\n")
    made = fitted.generate(fitted.fit(foreign.read(tmp_path / "m.txt")))
    events = made.threads[0]
    grown = events.kinds == layout.Kind.REALLOC
    before = events.sizes[events.births >= 0][events.ref_births[grown]]
    assert grown.sum() > 3900
    pairs = [*zip(before.tolist(), events.sizes[grown].tolist(), strict=True)]
    assert min(pairs.count((16, 32)), pairs.count((500, 900))) > 1900


def test_a_model_knows_how_much_of_a_large_block_was_used(tmp_path: Path) -> None:
    program = BUILD / "trace_program"
    if not program.exists():
        pytest.skip("the recorder is not built")
    request = recording.Request(tmp_path / "t.fst", (str(program), "partly-used"))
    line, env = recording.command_line(request)
    subprocess.run(line, env=env, capture_output=True, check=True)
    made = fitted.generate(fitted.fit(reader.read(tmp_path / "t.fst"))).threads[0]
    used = made.extras[made.kinds == layout.Kind.TOUCH]
    assert made.sizes.max() == 16 << 20 and 1024 <= int(used.max()) <= 1026


def test_a_block_that_grows_step_by_step_is_held_once(tmp_path: Path) -> None:
    """Among small reallocs, a large block grows a hundred times: its model holds no two of its states at once."""
    lines, small = ["= Start"], [0x1000, 0x2000]
    for i in range(2000):
        lines += [f"@ a:[0x1] + {small[0]:#x} 0x10", f"@ a:[0x1] < {small[0]:#x}", f"@ a:[0x1] > {small[1]:#x} 0x20"]
        lines += [f"@ a:[0x1] - {small[1]:#x}"]
        if i % 20 == 0:
            old, new = 0x100000 + i, 0x100000 + i + 20
            lines += [f"@ a:[0x1] < {old:#x}"] if i else []
            lines += [f"@ a:[0x1] {'>' if i else '+'} {new:#x} {(40 << 10) + i * 256:#x}"]
    (tmp_path / "m.txt").write_text("\n".join([*lines, "= End"]) + "\n")
    writer.write(foreign.read(tmp_path / "m.txt"), tmp_path / "t.fst")
    trace = reader.read(tmp_path / "t.fst")
    made = fitted.generate(fitted.fit(trace))
    peak, wanted = (int(figures.changes(t, 0).live_bytes.max()) for t in (made, trace))
    assert abs(peak / wanted - 1) < 0.1


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "x.model"
    wrong.write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(UserError, match="cannot be read as a model"):
        fitted.load(wrong)
    with pytest.raises(UserError, match="makes no sense"):
        fitted.generate({"phases": [{"births": 1, "end": 1, "cells": [[1]]}], "large": []})


WRONG: tuple[object, ...] = (None, "x", -3, 1.5, float("nan"), float("inf"), 1 << 70, [], [[]], {}, True)


@pytest.mark.parametrize(
    "field", ["program", "step_ns", "births", "last", "edges", "bursts", "clock", "large", "cells"]
)
def test_a_model_with_an_impossible_field_is_refused(field: str) -> None:
    """Each field missing and wrong; of a list each column, and of a column its first number."""
    model = fitted.fit(reader.read(corpus.traces(["curl"])[0]))
    fitted.generate(model)

    def refused(value: object) -> None:
        with pytest.raises(UserError, match="the model makes no sense: "):
            fitted.generate({**model, field: value})

    with pytest.raises(UserError, match=field):
        fitted.generate({name: value for name, value in model.items() if name != field})
    value = model[field]
    for wrong in WRONG:
        if isinstance(wrong, str) and field == "program":
            continue
        refused(wrong)
        for at, part in enumerate(value) if isinstance(value, list) else ():
            if not isinstance(part, list):
                refused([wrong, *value[1:]])
                break
            refused([*value[:at], wrong, *value[at + 1 :]])
            if field != "clock" or wrong != 1.5:
                refused([*value[:at], [wrong, *part[1:]], *value[at + 1 :]])


def test_blocks_that_are_freed_at_once_are_freed_at_once_by_a_model() -> None:
    """As a collector does: a thousand blocks live until the second after them begins, and then end together."""
    burst, bursts = 1024, 8
    lines, live = ["= Start"], [0x1000 + 0x100 * i for i in range(burst * bursts)]
    for i, address in enumerate(live):
        if i % burst == 7 and i > 2 * burst:
            begin = (i // burst - 2) * burst
            lines += [f"@ a:[0x1] - {old:#x}" for old in live[begin : begin + burst]]
        lines.append(f"@ a:[0x1] + {address:#x} 0x40")
    made = fitted.generate(fitted.fit(foreign._trace(Path("m"), "mtrace", [*foreign._mtrace(lines)]))).threads[0]
    births = np.flatnonzero(made.births >= 0)
    together = np.sort(np.diff(births) - 1)
    assert together[-(bursts - 2) :].min() > burst // 2


def test_the_page_knows_sizes_lifetimes_and_the_bound() -> None:
    trace = reader.read(corpus.traces(["lua"])[0])
    found = behaviour.describe(trace)
    for bars in found.bars:
        assert not bars.shares or abs(sum(bars.shares) - 1) < 1e-6
    assert found.least_pages_kib >= found.peak_live_kib and len(found.live) > 100
    assert abs(sum(map(sum, found.grids[1].shares)) - 1) < 1e-6


def test_a_model_waits_with_as_much_live_as_its_trace(tmp_path: Path) -> None:
    """A program that waits for long in the middle, and again while it frees all that it has."""
    births, wait = 4000, 10_000_000
    first = np.zeros(births, dtype=np.int64)
    times = np.concatenate([np.arange(births) + wait * (np.arange(births) >= 1000), births + wait + np.arange(births)])
    times[births + 1000 :] += wait
    kinds = np.repeat(np.array([Kind.MALLOC, Kind.FREE], dtype=np.uint8), births)
    own = np.arange(births)
    none = np.full(births, -1, dtype=np.int64)
    events = Events(
        0, 0, kinds, np.zeros(2 * births, dtype=bool), times, np.concatenate([first + 100, none]),
        np.zeros(2 * births, dtype=np.uint8), np.concatenate([own, none]), np.concatenate([none, first]),
        np.concatenate([none, own]), np.full(2 * births, -1, dtype=np.int64),
    )  # fmt: skip
    made = fitted.generate(fitted.fit(Trace("waits", 1000, 0, {}, {"end": "exit"}, {0: events})))
    writer.write(made, tmp_path / "m.fst")
    change = figures.changes(reader.read(tmp_path / "m.fst"), 0)
    longest = np.sort(np.argsort(np.diff(change.times))[-2:])
    assert change.live_bytes[longest].tolist() == pytest.approx([100 * 1000, 100 * 3000], rel=0.05)
