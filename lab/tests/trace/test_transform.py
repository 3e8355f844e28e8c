"""Traces made from traces: what is kept, what is counted anew, and that the replayer takes them."""

from pathlib import Path

import numpy as np
import pytest
from trace_tools import BUILT, PROGRAM, record

from freestone_lab.trace import events, replaying, transform
from freestone_lab.trace.describe import Kind
from freestone_lab.trace.events import Trace, births

pytestmark = BUILT


def recorded(folder: Path, *words: str, **options: object) -> Trace:
    return events.read(record(folder / "t.fst", str(PROGRAM), *words, **options))


def replayed(trace: Trace, path: Path) -> int:
    events.write(trace, path)
    found = replaying.replay(replaying.command(replaying.make_plan(path, replaying.Way()), replaying.Way(idle_ms=0)))
    assert found["failures"] == 0 and found["dropped"] == 0
    return int(found["calls"])


def calls(trace: Trace) -> int:
    return int((trace.rows["kind"] <= Kind.LOST_FREE).sum())


@pytest.mark.parametrize("words", [("every-kind",), ("hand-over", "80000"), ("threads", "20"), ("fork", "9")])
def test_a_trace_that_is_written_again_is_the_same(tmp_path: Path, words: tuple[str, ...]) -> None:
    trace = recorded(tmp_path, *words, stacks=True)
    again = tmp_path / "again.fst"
    size = events.write(trace, again)
    found = events.read(again)
    assert size == again.stat().st_size <= Path(trace.path).stat().st_size * 1.2
    assert found.meta == trace.meta and found.summary == trace.summary
    for name in ("rows", "points", "gaps", "frames"):
        assert np.array_equal(getattr(found, name), getattr(trace, name)), name
    assert words[0] == "every-kind" or len(trace.frames)


def test_every_size_comes_back(tmp_path: Path) -> None:
    """Those at whose neighbours a number takes a byte more."""
    sizes = [size for bits in range(7, 49, 7) for size in (2**bits - 1, 2**bits, 2**bits + 1) if size < 2**48]
    rows = np.zeros(2 * len(sizes), events.ROW)
    rows["kind"], rows["size"], rows["time"], rows["object"] = Kind.MALLOC, [*sizes, *sizes], np.arange(len(rows)), -1
    rows["thread"][len(sizes) :] = 1
    events.write(Trace("", 1000, 0, {}, {"end": "exit"}, rows), tmp_path / "t.fst")
    assert np.array_equal(events.read(tmp_path / "t.fst").rows, rows)


def test_the_middle_begins_with_what_was_live(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "hand-over", "80000")
    times = np.sort(trace.rows["time"])
    begin, end = (int(times[len(times) * share // 4]) for share in (2, 3))
    begin_s, end_s = ((time + 0.5) * trace.step_ns / 1e9 for time in (begin, end))
    middle = transform.cut(trace, begin_s, end_s)
    whole = events.changes(trace, 0)
    live_then = int(whole.live_objects[whole.times < begin][-1:].sum())
    born = trace.rows["time"][births(trace.rows)]
    assert int(births(middle.rows).sum()) == live_then + int(((born >= begin) & (born < end)).sum())
    assert replayed(middle, tmp_path / "middle.fst") == calls(middle)


def test_a_beginning_of_a_given_size(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "hand-over", "200000")
    path = tmp_path / "part.fst"
    assert transform.to_size(trace, 8000, path) <= 8000 and path.stat().st_size >= 3000
    assert 0 < len(events.read(path).rows) < len(trace.rows)


def test_two_programs_side_by_side(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "threads", "5"), recorded(tmp_path, "hand-over", "500")
    both = transform.merge([a, b])
    assert calls(both) == calls(a) + calls(b)
    assert len(np.unique(both.rows["thread"])) == sum(len(np.unique(one.rows["thread"])) for one in (a, b))
    assert replayed(transform.one_process(both), tmp_path / "both.fst") == calls(a) + calls(b)


def test_an_anonymous_trace_names_nothing(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "every-kind")
    path = tmp_path / "a.fst"
    events.write(transform.anonymise(trace, 64), path)
    found = events.read(path)
    assert b"trace_program" not in path.read_bytes() and found.started_unix_ns == 0
    assert not bool((found.rows["size"][births(found.rows)] % 64).any()) and calls(found) == calls(trace)
