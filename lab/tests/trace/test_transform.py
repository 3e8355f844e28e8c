"""Traces made from traces: what is kept, what is counted anew, and that the replayer takes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from freestone_lab.core import paths
from freestone_lab.trace import figures, layout, reader, recording, replaying, transform, writer
from freestone_lab.trace.events import EVENT_ARRAYS, Trace

BUILD = paths.build_dir()
PROGRAM = BUILD / "trace_program"
pytestmark = pytest.mark.skipif(
    not (PROGRAM.exists() and (BUILD / recording.REPLAYER).exists()), reason="the recorder is not built"
)


def recorded(folder: Path, *words: str) -> Trace:
    output = folder / "t.fst"
    line, env = recording.command_line(recording.Request(output, (str(PROGRAM), *words)))
    subprocess.run(line, env=env, check=True, capture_output=True)
    return reader.read(output)


def replayed(trace: Trace, path: Path) -> int:
    writer.write(trace, path)
    found = replaying.replay(replaying.command(replaying.make_plan(path, replaying.Way()), replaying.Way(idle_ms=0)))
    assert found["failures"] == 0 and found["dropped"] == 0
    return int(found["calls"])


def calls(trace: Trace) -> int:
    return sum(int((layout.IS_BIRTH[e.kinds] | layout.IS_DEATH[e.kinds]).sum()) for e in trace.threads.values())


@pytest.mark.parametrize("words", [("every-kind",), ("hand-over", "80000"), ("threads", "20"), ("fork", "9")])
def test_a_trace_that_is_written_again_is_the_same(tmp_path: Path, words: tuple[str, ...]) -> None:
    trace = recorded(tmp_path, *words)
    again = tmp_path / "again.fst"
    size = writer.write(trace, again)
    found = reader.read(again)
    assert size == again.stat().st_size <= Path(trace.path).stat().st_size * 1.2
    assert found.meta == trace.meta and found.summary == trace.summary and list(found.threads) == list(trace.threads)
    for number, events in trace.threads.items():
        for name in EVENT_ARRAYS:
            assert np.array_equal(getattr(found.threads[number], name), getattr(events, name)), name
    for process, curve in trace.curves.items():
        assert np.array_equal(found.curves[process].resident, curve.resident)


def test_the_middle_begins_with_what_was_live(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "hand-over", "80000")
    middle = transform.cut(trace, trace.duration_s * 0.5, trace.duration_s * 0.75)
    whole = figures.changes(trace, 0)
    begin = int(trace.duration_s * 0.5 * 1e9 / trace.step_ns)
    live_then = int(whole.objects[whole.times < begin].sum())
    births = sum(int((e.births >= 0).sum()) for e in middle.threads.values())
    inside = (trace.threads[0].births >= 0) & (trace.threads[0].times >= begin)
    inside &= trace.threads[0].times < int(trace.duration_s * 0.75 * 1e9 / trace.step_ns)
    assert births == live_then + int(inside.sum())
    assert replayed(middle, tmp_path / "middle.fst") == calls(middle)


def test_a_beginning_of_a_given_size(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "hand-over", "200000")
    path = tmp_path / "part.fst"
    assert transform.to_size(trace, 8000, path) <= 8000 and path.stat().st_size >= 3000
    assert 0 < reader.read(path).events < trace.events


def test_two_programs_side_by_side(tmp_path: Path) -> None:
    a, b = recorded(tmp_path, "threads", "5"), recorded(tmp_path, "hand-over", "500")
    both = transform.merge([a, b])
    assert calls(both) == calls(a) + calls(b) and len(both.threads) == len(a.threads) + len(b.threads)
    assert replayed(transform.one_process(both), tmp_path / "both.fst") == calls(a) + calls(b)


def test_an_anonymous_trace_names_nothing(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "every-kind")
    path = tmp_path / "a.fst"
    writer.write(transform.anonymise(trace, 64), path)
    found = reader.read(path)
    assert b"trace_program" not in path.read_bytes() and found.started_unix_ns == 0
    sizes = found.threads[0].sizes
    assert bool((sizes[sizes > 0] % 64 == 0).all()) and calls(found) == calls(trace)
