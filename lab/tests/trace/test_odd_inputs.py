"""The readers: what is no trace and no record at all, and what is damaged or impossible: one clear error each."""

import gzip
import os
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trace_tools as tools
import zstandard
from command_tools import freestone
from trace_tools import BUILT, EVENTS, META, ONE_BIRTH, REPLAYER, SUMMARY, block, event_block, trace_of

from freestone_lab.core.errors import UserError
from freestone_lab.trace import events, foreign, replaying
from freestone_lab.trace.describe import Kind
from freestone_lab.trace.events import TraceError

BIRTH = block(EVENTS, ONE_BIRTH, events=1)
EXIT = block(SUMMARY, b'{"end":"exit"}')
HUGE_NUMBER = b"\xff" * 9 + b"\x01"  # 2^64 - 1 as a varint
SAYS_A_TIB = b"\x28\xb5\x2f\xfd\xc0\x58" + struct.pack("<Q", 1 << 40) + b"\x01\0\0"  # a zstd frame
CUT_FRAME = zstandard.compress(ONE_BIRTH * 9)[:-3]


def native(verb: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        words = [str(REPLAYER), verb, str(path), *([f"{path}.plan"] if verb == "plan" else [])]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=1200)
        if done.returncode:
            assert done.returncode == 2, f"status {done.returncode}: {done.stderr}"
            raise UserError(done.stderr)

    return read


def planned(path: Path) -> Path:
    return replaying.make_plan(path, replaying.Way())


READERS = {
    "foreign": foreign.read,
    "trace": pytest.param(events.read, marks=BUILT),
    "replay": pytest.param(planned, marks=BUILT),
    **{verb: pytest.param(native(verb), marks=BUILT) for verb in ("plan", "run", "info", "rows")},
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("what", ["missing", "empty", "folder", "pipe", "/dev/null", "/dev/zero"])
def test_what_is_no_file_with_contents_is_named(read: Callable[[Path], object], what: str, tmp_path: Path) -> None:
    path = Path(what) if what.startswith("/") else tmp_path / what
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "empty":
        path.touch()
    with pytest.raises(UserError) as error:
        read(path)
    assert str(path) in str(error.value) and str(error.value).strip().count("\n") == 0


# Whether a replay refuses it too: it drops events of unknown objects, and reads no text.
IMPOSSIBLE = {
    "events": (block(EVENTS, ONE_BIRTH, events=2**32 - 1), "columns have other lengths", True),
    "unpacked size": (block(EVENTS, ONE_BIRTH, events=1, raw_bytes=2**32 - 1), "a block's header is impossible", True),
    "birth number": (block(EVENTS, ONE_BIRTH, events=1, thread=1, first_birth=2**64 - 1), "is impossible", True),
    "time": (block(EVENTS, ONE_BIRTH, events=1, first_time=2**64 - 1), "is impossible", True),
    "thread": (block(EVENTS, ONE_BIRTH, events=1, thread=2**32 - 1), "is impossible", True),
    "size": (event_block(b"\x01", HUGE_NUMBER[:-1] + b"\0", thread=1), "a size or an alignment is impossible", True),
    "alignment": (event_block(bytes([Kind.MEMALIGN]), b"\x10", b"\x40", thread=1), "an alignment is impossible", True),
    "cut size": (event_block(b"\x01", b"\x80", thread=1), "columns do not fit its events", True),
    "size of 70 bits": (event_block(b"\x01", b"\x80" * 10 + b"\1", thread=1), "columns do not fit its events", True),
    "thread referred to": (
        event_block(bytes([1, Kind.FREE | tools.FOREIGN]), b"\x10", refs=HUGE_NUMBER + b"\0", thread=1),
        "a reference names a thread that cannot be",
        True,
    ),
    "reference": (event_block(bytes([1, Kind.FREE]), b"\x10", refs=b"\x07", thread=1), "before the first", True),
    "unmade object": (event_block(bytes([Kind.FREE | tools.FOREIGN]), refs=b"\x05\x02", thread=1), "never made", False),
    "two ends": (event_block(bytes([1, Kind.FREE, Kind.FREE]), b"\1", refs=b"\0\0", thread=1), "ends twice", False),
    "frame of a TiB": (block(EVENTS, SAYS_A_TIB, tools.ZSTD, events=1, raw_bytes=26), "does not unpack", True),
    "cut frame": (block(EVENTS, CUT_FRAME, tools.ZSTD, raw_bytes=234), "does not unpack", True),
    "deep text": (block(META, b"[" * 200_000), "no JSON", False),
    "text of another kind": (block(SUMMARY, b"[1]"), "no JSON object", False),
    "text that is none": (block(META, b"\xff\xfe"), "no JSON", False),
    "curve": (block(tools.SAMPLES, b"\x80", events=1), "another number of points", True),
    "stack": (block(tools.STACKS, b"\x01" + HUGE_NUMBER), "a stack is cut", True),
    "type": (block(99, b""), "a block's type is 99", True),
}


@BUILT
@pytest.mark.parametrize(("wrong", "message", "in_a_plan"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_contents_are_named(wrong: bytes, message: str, in_a_plan: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.fst"
    path.write_bytes(trace_of(BIRTH, EXIT, wrong))
    with pytest.raises(TraceError, match=rf"t\.fst: .*{re.escape(message)}"):
        events.read(path)
    if in_a_plan:
        with pytest.raises(UserError, match=rf"t\.fst: at byte \d+: .*{re.escape(message)}"):
            native("plan")(path)
    else:
        native("plan")(path)


@BUILT
def test_a_trace_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.fst"
    path.write_bytes(trace_of(BIRTH, version=2))
    with pytest.raises(TraceError, match="version 2; this reader knows 1"):
        events.read(path)


@BUILT
@pytest.mark.parametrize("thread", [0, 0x7FFFFFFF, 0xFFFFFFFE])
def test_a_thread_may_have_any_number(thread: int, tmp_path: Path) -> None:
    path = tmp_path / "t.fst"
    path.write_bytes(trace_of(block(EVENTS, ONE_BIRTH, events=1, thread=thread)))
    assert events.read(path).rows["thread"].tolist() == [thread]


@BUILT
@pytest.mark.parametrize("size", [9, 10, 15, 16, 17, 4095, 4096, 4097, 100_001])
def test_the_checksum_is_crc32c_at_every_length(size: int, tmp_path: Path) -> None:
    """The test's own, byte by byte, of a text of so many bytes."""
    path = tmp_path / "t.fst"
    path.write_bytes(trace_of(block(META, b'{"a":"' + b"x" * (size - 8) + b'"}')))
    assert len(events.read(path).meta["a"]) == size - 8


@BUILT
def test_a_call_that_asked_for_a_vast_alignment_and_failed_is_replayed(tmp_path: Path) -> None:
    failed = event_block(bytes([Kind.POSIX_MEMALIGN | tools.FAILED]), b"\x10", bytes([50]))
    (tmp_path / "t.fst").write_bytes(trace_of(failed))
    made = replaying.replay(replaying.command(planned(tmp_path / "t.fst"), replaying.Way(idle_ms=0)))
    assert made["calls"] == 1 and made["dropped"] == 0


@BUILT
def test_what_is_whole_of_a_cut_trace_can_be_read(tmp_path: Path) -> None:
    whole = tools.record(tmp_path / "t.fst", str(tools.PROGRAM), "every-kind")
    cut = tmp_path / "cut.fst"
    cut.write_bytes(whole.read_bytes()[:-40])
    trace = events.read(cut, partial=True)
    assert len(trace.rows) == len(events.read(whole).rows) and "cut short" in trace.cut
    cut.write_bytes(whole.read_bytes() + b"x")
    with pytest.raises(TraceError, match="follow the end mark"):
        events.read(cut)


@BUILT
def test_check_tells_a_damaged_trace_from_one_that_cannot_be_read(tmp_path: Path) -> None:
    data = trace_of(BIRTH)
    (tmp_path / "small.fst").write_bytes(data)
    (tmp_path / "damaged.fst").write_bytes(data[:-1])
    done = freestone(tmp_path, "trace", "check", "small.fst")
    assert done.returncode == 0 and "1 events of 1 threads, every checksum right" in done.stdout
    assert freestone(tmp_path, "trace", "check", "small.fst", "damaged.fst").returncode == 1
    done = freestone(tmp_path, "trace", "check", "nosuch.fst", "damaged.fst")
    assert done.returncode == 2 and "nosuch.fst: cannot be read: No such file or directory" in done.stdout


HEAPTRACK = b"v 10400 3\nt 1a 0\n+ 20 1 4056b0\n- 4056b0\n"
DAMAGED = {
    "zstd, cut": (zstandard.compress(HEAPTRACK)[:-2], "does not unpack: it is cut short"),
    "zstd, cut in the second frame": (zstandard.compress(HEAPTRACK) + zstandard.compress(HEAPTRACK)[:-2], "cut short"),
    "gzip, cut": (gzip.compress(HEAPTRACK)[:-9], "does not unpack"),
    "gzip, damaged": (gzip.compress(HEAPTRACK)[:12] + b"\xff" * 40, "does not unpack"),
    "mtrace, size": (b"= Start\n@ a:[0x1] + 0x10 0x" + b"f" * 40 + b"\n", "a size or an address in it is impossible"),
    "mtrace, address": (b"= Start\n@ a:[0x1] + 0x" + b"f" * 40 + b" 0x10\n", "impossible"),
    "heaptrack, size": (b"v 1 2\n+ " + b"f" * 20 + b" 1 10\n", "impossible"),
}


@pytest.mark.parametrize(("data", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_records_of_other_tools_are_named(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"r\.txt: .*{message}"):
        foreign.read(path)


def test_all_frames_of_a_record_are_read(tmp_path: Path) -> None:
    path = tmp_path / "h.zst"
    path.write_bytes(zstandard.compress(HEAPTRACK[:10]) + zstandard.compress(HEAPTRACK[10:]))
    assert len(foreign.read(path).rows) == 2
