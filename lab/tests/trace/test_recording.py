"""The recorder: what it writes of programs whose calls are known, and what the program notices of it."""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from peers_tools import compiled
from trace_tools import BUILD, BUILT, PROGRAM, recorder

from freestone_lab.core.errors import UserError
from freestone_lab.trace import describe, events, recording
from freestone_lab.trace.describe import Kind
from freestone_lab.trace.events import Trace, births

pytestmark = BUILT
Record = Callable[..., Trace]
PRELOADED = {**os.environ, "LD_PRELOAD": str(BUILD / recording.LIBRARY)}


@pytest.fixture
def record(tmp_path: Path) -> Record:
    def recorded(*words: str, status: int = 0, preexec: Callable[[], None] | None = None, **options: object) -> Trace:
        output = tmp_path / "t.fst"
        line, env = recorder(output, str(PROGRAM), *words, **options)
        done = subprocess.run(line, env=env, capture_output=True, text=True, preexec_fn=preexec)
        assert done.returncode == status, done.stderr
        return events.read(output)

    return recorded


def of_kind(trace: Trace, kind: Kind, size: int | None = None) -> int:
    rows = trace.rows
    chosen = (rows["kind"] == kind) & ~rows["failed"]
    return int((chosen & (rows["size"] == size)).sum() if size is not None else chosen.sum())


def test_every_kind_of_call_is_recorded_with_its_size(record: Record) -> None:
    trace = record("every-kind")
    births = {
        Kind.MALLOC: (1001, 1), Kind.CALLOC: (1002, 2), Kind.ALIGNED_ALLOC: (1024, 3), Kind.POSIX_MEMALIGN: (1004, 4),
        Kind.MEMALIGN: (1005, 5), Kind.VALLOC: (1006, 6), Kind.PVALLOC: (1007, 7), Kind.NEW: (1008, 8 + 19 + 1),
        Kind.NEW_ARRAY: (1009, 9 + 20), Kind.NEW_ALIGNED: (1010, 10), Kind.NEW_ARRAY_ALIGNED: (1011, 11),
        Kind.REALLOC_NULL: (1012, 12), Kind.REALLOC: (1013, 13),
    }  # fmt: skip
    assert {k: of_kind(trace, k, size) for k, (size, _) in births.items()} == {k: n for k, (_, n) in births.items()}
    deaths = {
        Kind.DELETE: 9, Kind.DELETE_ARRAY: 9, Kind.DELETE_SIZED: 19, Kind.DELETE_ARRAY_SIZED: 20,
        Kind.DELETE_ALIGNED: 10, Kind.DELETE_ARRAY_ALIGNED: 11,
    }  # fmt: skip
    assert {k: of_kind(trace, k) for k in deaths} == deaths
    assert of_kind(trace, Kind.REALLOC_NULL, 3000) == 3  # reallocarray
    assert of_kind(trace, Kind.MALLOC, 5 << 30) == 1
    rows = trace.thread(0)
    assert int((rows["failed"] & (rows["size"] == 1 << 46)).sum()) == 2
    assert rows["align_log2"][rows["kind"] == Kind.MEMALIGN].tolist() == [8] * 5
    assert trace.summary["unknown_frees"] <= 1 and trace.summary["lost_frees"] == 0


def test_a_block_freed_by_another_thread_names_its_maker(record: Record) -> None:
    trace = record("hand-over", "20000")
    taker = trace.thread(1)
    handed = taker["object"][(taker["kind"] == Kind.FREE) & (trace.rows["thread"][taker["object"]] == 0)]
    assert handed.size == 20000 and bool((np.diff(handed) > 0).all())
    assert trace.rows["size"][handed[7]] == 24 + 7
    assert trace.summary["lost_frees"] == 0


def test_every_thread_has_a_start_and_an_end(record: Record) -> None:
    trace = record("threads", "300")
    workers = np.unique(trace.rows["thread"])[1:]
    assert len(workers) == 300
    for number in workers:
        rows = trace.thread(number)
        assert rows["kind"][0] == Kind.THREAD_START and rows["kind"][-1] == Kind.THREAD_END
        assert int(((rows["kind"] == Kind.MALLOC) & (rows["size"] == 77)).sum()) == 100


def test_a_child_frees_what_its_parent_made(record: Record) -> None:
    trace = record("fork", "50")
    parent, child = trace.thread(0), trace.rows[trace.rows["process"] == 1]
    assert parent["size"][parent["kind"] == Kind.FORK].tolist() == [1]
    freed = trace.rows[child["object"][child["kind"] == Kind.FREE]]
    inherited = freed[freed["thread"] == 0]
    assert inherited.size == 50 and set(inherited["size"].tolist()) == {333}
    assert int(((child["kind"] == Kind.MALLOC) & (child["size"] == 444)).sum()) == 10


UNUSUAL = {
    "killed": (20000, 137), "crash": (20000, 134), "quick-exit": (20000, 7),
    "daemon": (300, 0),  # its parents are gone when it makes its first call
    "without-files": (300, 0),  # its first call comes when it can open nothing more
    "signals": (100000, 0),  # a handler that allocates, between any two instructions
}  # fmt: skip


@pytest.mark.parametrize("mode", UNUSUAL)
def test_an_unusual_program_leaves_all_its_calls(record: Record, mode: str) -> None:
    count, status = UNUSUAL[mode]
    trace = record(mode, str(count), status=status)
    assert of_kind(trace, Kind.MALLOC, 55) == count
    assert mode != "signals" or trace.summary["lost_frees"] == 0


@contextmanager
def ready(words: Sequence[str], env: dict[str, str], stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """The test program as a server, or its recorder, once it says that it is ready."""
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process


def until_told(output: Path, count: int, **options: object) -> tuple[list[str], dict[str, str]]:
    return recorder(output, str(PROGRAM), "until-told", str(count), **options)


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_forks_away_and_lives_on_is_said_and_ends_with_the_recording(tmp_path: Path, number: int) -> None:
    output = tmp_path / "t.fst"
    line, env = recorder(output, "sh", "-c", f"{PROGRAM} until-told 100 >/dev/null & echo $!")
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        left = process.stdout.readline().strip()
        assert f"it left process {left}" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait() == 0
    assert events.read(output).summary["end"] == "signal" and not Path(f"/proc/{left}").exists()


def test_what_threads_without_a_buffer_lose_is_said(record: Record) -> None:
    """A buffer of 2 MiB has 64 blocks, one for each thread."""
    trace = record("threads-at-once", "100", buffer_bytes=2 << 20)
    kept = of_kind(trace, Kind.MALLOC, 77)
    lost = trace.summary["dropped_calls"]
    assert kept < 200 and lost >= 200 - kept
    said = describe.lines(describe.facts(Path(trace.path)))
    assert f"  {lost} calls dropped: their threads found no free buffer" in said


@pytest.mark.long
def test_processes_more_than_there_is_room_for_are_said(record: Record) -> None:
    trace = record("children", "8300")
    assert of_kind(trace, Kind.MALLOC, 77) + trace.summary["lost_processes"] == 8300 > 8192


def test_pages_of_a_large_block_that_are_not_used_are_not_counted(record: Record) -> None:
    trace = record("partly-used")
    rows = trace.rows
    of_block = rows["size"][np.where(rows["kind"] == Kind.TOUCH, rows["object"], 0)] == 16 << 20
    assert 1024 <= int(rows["size"][(rows["kind"] == Kind.TOUCH) & of_block][-1]) <= 1026


def test_the_resident_curve_shows_what_the_program_used(record: Record) -> None:
    curve = record("partly-used").points
    assert 4096 < int(curve["anonymous_kib"].max()) < 16384 and bool((np.diff(curve["time"]) > 0).all())


def test_a_full_disk_ends_neither_the_program_nor_the_trace(tmp_path: Path) -> None:
    """A limit on the size of the writer's files stands for the disk. The trace is shorter, whole, and the status 2."""
    output, partial = tmp_path / "t.fst", tmp_path / "t.fst.partial"
    with ready(*until_told(output, 2000, buffer_bytes=1 << 21), subprocess.PIPE) as process:
        while partial.stat().st_size < 5000:
            time.sleep(0.05)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (partial.stat().st_size + 100,) * 2)
        time.sleep(1)
        os.kill(children(process)[0], signal.SIGUSR1)
        said = process.communicate()[1]
        assert process.wait() == 2 and "File too large" in said and "ended by write-error" in said
    trace = events.read(output)
    assert trace.summary["end"] == "write-error" and of_kind(trace, Kind.MALLOC, 55) > 0
    assert list(tmp_path.iterdir()) == [output]


def test_two_recordings_into_one_file_do_not_mix(tmp_path: Path) -> None:
    """The second is refused while the first writes. What a killed one left is taken over."""
    output = tmp_path / "t.fst"
    (tmp_path / "t.fst.partial").write_text("of a recording that was killed")
    line, env = until_told(output, 100)
    with ready(line, env, subprocess.DEVNULL) as first:
        second = subprocess.run(line, env=env, capture_output=True, text=True)
        assert second.returncode == 2 and not second.stdout and second.stderr.count("\n") == 1
        assert f"'{output}'" in second.stderr and "another recording" in second.stderr
        first.terminate()
        assert first.wait() == 128 + signal.SIGTERM
    assert of_kind(events.read(output), Kind.MALLOC, 55) >= 100
    assert list(tmp_path.iterdir()) == [output]


def test_a_slow_disk_drops_whole_seconds_and_says_so(tmp_path: Path) -> None:
    """A pipe that nobody reads for a while stands for the disk."""
    pipe, output = tmp_path / "pipe", tmp_path / "t.fst"
    os.mkfifo(pipe)
    line, env = recorder(pipe, str(PROGRAM), "hand-over", "3000000", buffer_bytes=1 << 21)
    with subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True) as process, pipe.open("rb") as read:
        held = read.read(1)
        while not children(process):
            time.sleep(0.01)
        while children(process):
            time.sleep(0.05)
        output.write_bytes(held + read.read())
        assert process.wait() == 0
    trace = events.read(output)
    assert trace.summary["gap_seconds"] >= 1
    everybody = trace.gaps[trace.gaps["thread"] == events.ALL]
    assert everybody.size and len(trace.rows) < 6000000
    born = trace.rows["time"][births(trace.rows)]
    for gap in everybody:
        assert not bool(((born > gap["first_time"]) & (born < gap["last_time"])).any())


def test_the_largest_size_of_a_trace_is_kept(record: Record) -> None:
    trace = record("hand-over", "300000", max_bytes=50_000)
    assert trace.summary["end"] == "max-bytes" and Path(trace.path).stat().st_size <= 50_000


def test_a_small_buffer_drops_whole_seconds_and_the_program_goes_on(record: Record) -> None:
    trace = record("churn", "500000", buffer_bytes=1)  # 16 blocks: the least
    assert len(trace.rows)
    if trace.summary["gap_seconds"]:
        assert trace.gaps.size and bool((trace.gaps["last_time"] > trace.gaps["first_time"]).all())


def test_one_thread_in_so_many(record: Record) -> None:
    trace = record("threads", "60", sample_threads=4)
    makers = trace.rows["thread"][births(trace.rows)]
    assert makers.size and not bool((makers % 4).any())
    assert of_kind(trace, Kind.MALLOC, 77) == 100 * (60 // 4)


def test_a_running_process_is_joined_and_left(tmp_path: Path) -> None:
    with ready([str(PROGRAM), "until-told", "1000"], PRELOADED) as process:
        for attempt in ("a", "b"):
            output = tmp_path / f"{attempt}.fst"
            assert recording.record(recording.Request(output, pid=process.pid, seconds=0.5)) == 0
            trace = events.read(output)
            assert of_kind(trace, Kind.MALLOC, 55) >= 1000 and trace.meta["attached"] is True
        process.send_signal(signal.SIGUSR1)
        assert process.wait() == 0
    assert not Path(f"/dev/shm/freestone-record.{process.pid}").exists()


def test_a_process_that_is_gone_is_not_joined(tmp_path: Path) -> None:
    """It was killed, and its control file is still there."""
    with ready([str(PROGRAM), "until-told", "10"], PRELOADED) as process:
        process.kill()
    control = Path(f"/dev/shm/freestone-record.{process.pid}")
    assert control.exists()
    output = tmp_path / "t.fst"
    output.write_text("kept")
    line, _ = recorder(output, pid=process.pid)
    done = subprocess.run(line, capture_output=True, text=True)
    control.unlink()
    assert done.returncode == 2 and f"there is no process {process.pid}" in done.stderr
    assert output.read_text() == "kept"


def test_the_recording_ends_and_the_program_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "t.fst"
    with ready(*until_told(output, 100, seconds=0.3), subprocess.DEVNULL) as process:
        while not output.exists():
            time.sleep(0.05)
        assert process.poll() is None
        os.kill(children(process)[0], signal.SIGUSR1)
        assert process.wait() == 0
    assert events.read(output).summary["end"] == "time"


def test_no_address_and_no_argument_enters_a_trace(record: Record) -> None:
    trace = record("churn", "31415")
    data = Path(trace.path).read_bytes()
    assert b"31415" not in data and trace.meta["program"] == "trace_program" and not trace.frames.size


def test_stacks_are_sampled_when_asked_for(record: Record) -> None:
    trace = record("churn", "20000", stacks=True)
    assert 10 <= len(np.unique(trace.frames["object"])) <= 25 and bool(trace.frames["address"].all())


def test_live_memory_is_what_the_program_holds(record: Record) -> None:
    """Ten times 3000 blocks are made and then freed by another thread; the program and libstdc++ hold a few more."""
    trace = record("in-turns", "3000")
    live = events.changes(trace, 0).live_objects
    assert 3000 <= int(live.max()) <= 3000 + 6 and int(live.min()) >= 0 and int(live[-1]) <= 6
    assert 30000 <= events.crossing(trace) <= 30000 + 10  # each thread also frees what started it


LATE_CLOCK = """
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *out) {
  static unsigned calls;
  if (!strcmp(program_invocation_short_name, "freestone-record") && ++calls % 4 == 0) usleep(8000);
  return (int)syscall(SYS_clock_gettime, id, out);
}
"""


def test_a_writer_that_loses_its_processor_dates_no_call_wrongly(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(compiled(tmp_path / "late.so", LATE_CLOCK)))
    trace = record("in-turns", "20000")
    ended = trace.rows[(trace.rows["kind"] == Kind.FREE) & (trace.rows["object"] != events.NONE)]
    born = trace.rows[ended["object"]]
    of_main = born["thread"] == 0
    assert bool((born["time"] <= ended["time"] + 2)[of_main].all()) and int(of_main.sum()) >= 200_000


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    for request, message in (
        (recording.Request(tmp_path / "t.fst"), "expected either a command"),
        (recording.Request(Path("/proc/none/t.fst"), ("true",)), "cannot be written"),
        (recording.Request(tmp_path / "t.fst", ("/no/such",)), "does not exist"),
    ):
        with pytest.raises(UserError, match=message):
            recording.command_line(request)
