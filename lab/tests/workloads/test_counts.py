"""What the workloads ask of an allocator, counted from outside: by the recorder, call by call."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import workload_tools as tools
from trace_tools import record

from freestone_lab.core import paths
from freestone_lab.trace import events, recording
from freestone_lab.trace.events import Trace, births

pytestmark = pytest.mark.skipif(not (paths.build_dir() / recording.WRITER).exists(), reason="the recorder is not built")
Recorded = Callable[..., Trace]
MIB = 1 << 20


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    def run(*words: str) -> Trace:
        return events.read(record(tmp_path / "t.fst", str(tools.program()), *words, "--idle-ms=0"))

    return run


def asked(trace: Trace) -> int:
    """The bytes that all threads ask for."""
    return int(trace.rows["size"][births(trace.rows)].sum())


def test_every_call_of_the_surface_is_made_as_often_as_said(recorded: Recorded) -> None:
    made = events.kinds(recorded("calls", "--rounds=2"))
    once = 2 * 64
    rare = {
        "aligned_alloc": 2, "posix_memalign": 2, "memalign": 1, "valloc": 1, "realloc": 3, "new": 2, "new_array": 2,
        "new_aligned": 1, "new_array_aligned": 1, "delete": 1, "delete_sized": 1, "delete_array": 1,
        "delete_array_sized": 1, "delete_aligned": 1, "delete_array_aligned": 1,
    }  # fmt: skip
    assert {kind: made.get(kind, 0) for kind in rare} == {kind: times * once for kind, times in rare.items()}
    assert made["realloc_null"] >= 2 * once and made["calloc"] >= once and made["malloc"] >= 5 * once + 64


def test_a_heap_grows_and_shrinks_by_what_is_said(recorded: Recorded) -> None:
    trace = recorded("grow-shrink", "--mib=4", "--cycles=6", "--low=1000", "--high=3000")
    live = events.changes(trace, 0).live_bytes
    # The cycle's bytes above what stays: a sixteenth of the first cycle's.
    assert 4 * MIB <= int(live.max()) <= 4 * MIB + 4 * MIB / 8 and 6 * 4 * MIB <= asked(trace) <= 6.3 * 4 * MIB
    low = 4 * MIB / 4
    below = live < low
    assert int((below[1:] & ~below[:-1]).sum()) == 6


def test_heaps_of_several_threads_share_what_is_said(recorded: Recorded) -> None:
    trace = recorded("grow-shrink", "--mib=4", "--cycles=2", "--threads=4", "--low=1000", "--high=3000")
    large = births(trace.rows) & (trace.rows["size"] >= 1000)
    assert int((np.bincount(trace.rows["thread"][large]) > 300).sum()) == 4
    assert 2 * 4 * MIB <= asked(trace) <= 2.3 * 4 * MIB


def test_a_drifting_server_keeps_its_live_bytes_and_replaces_its_turnover(recorded: Recorded) -> None:
    trace = recorded("drift", "--live-mib=1", "--turnover=200", "--phases=7")
    live = events.changes(trace, 0).live_bytes
    assert 0.98 * MIB <= int(live.max()) <= 1.1 * MIB
    assert 7 * 2 * MIB <= asked(trace) <= 7.5 * 2 * MIB
    sizes = trace.thread(0)["size"][births(trace.thread(0))]
    third = len(sizes) // 3
    assert int((sizes[:third] < 100).sum()) > 0.5 * third > int((sizes[-third:] < 100).sum())  # the sizes drift


def test_one_block_in_sixteen_of_a_drifting_server_survives(recorded: Recorded) -> None:
    rows = recorded("drift", "--live-mib=1", "--turnover=400", "--phases=1", "--survivors=40").thread(0)
    born = np.cumsum(births(rows))  # of thread 0, whose rows come first
    ended = rows["object"][events.ends(rows)]
    lived = born[events.ends(rows)] - born[ended] + 1  # in blocks made since
    typical = sorted(float(np.median(lived[(born[ended] - 1) % 16 == kind])) for kind in range(16))
    assert typical[15] > 3 * typical[14] and typical[14] < 2 * typical[0]


def test_sleeping_threads_use_what_is_said_and_free_it(recorded: Recorded) -> None:
    trace = recorded("idle-threads", "--threads=8", "--kib=256", "--idle=1")
    made = trace.rows[births(trace.rows)]
    used = np.bincount(made["thread"], weights=made["size"])
    assert sum(256 * 1024 <= n <= 256 * 1024 + 80_000 for n in used) == 8
    assert events.changes(trace, 0).live_bytes[-1] < 100_000


def test_what_sleeping_threads_keep_is_seen(tmp_path: Path) -> None:
    keeping = tools.library(tmp_path, MISALIGN=1)  # its free does nothing
    words = ["idle-threads", "--threads=8", "--idle=1", "--idle-ms=0"]
    much, little = (tools.run(*words, f"--kib={kib}", preload=keeping) for kib in (256, 1))
    assert much.value("rss_asleep") >= 8 * 256 > little.value("rss_asleep") > 0


def test_a_twentieth_of_a_servers_blocks_is_freed_by_another_thread(recorded: Recorded) -> None:
    trace = recorded("server", "--requests=2000", "--threads=2")
    share = events.crossing(trace) / (2000 * 16)
    assert 0.04 <= share <= 0.06


@pytest.mark.parametrize(("remote", "crossed"), [(0, 0), (100, 2000 * 16)])
def test_a_servers_share_is_the_one_asked_for(remote: int, crossed: int) -> None:
    out = tools.run("server", "--requests=2000", "--threads=2", f"--remote={remote}", "--idle-ms=0")
    assert out.value("crossed_frees") == crossed
    assert out.value("timed_allocations") == 2000 * 16 + 2000 / 4
