"""What is no trace and no record at all, and what is one with impossible contents: one clear error each."""

from __future__ import annotations

import gzip
import os
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from trace_tools import ONE_BIRTH, block, trace_of

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.trace import foreign, layout, reader, recording, replaying
from freestone_lab.trace.events import TraceError
from freestone_lab.trace.layout import BlockType, Kind

REPLAYER = paths.build_dir() / recording.REPLAYER
BIRTH = block(BlockType.EVENTS, ONE_BIRTH, events=1)
HUGE_NUMBER = b"\xff" * 9 + b"\x01"  # 2^64 - 1 as a varint
SAYS_A_TIB = b"\x28\xb5\x2f\xfd\xc0\x58" + struct.pack("<Q", 1 << 40) + b"\x01\0\0"  # a zstd frame


def native(verb: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        words = [str(REPLAYER), verb, str(path), *([f"{path}.plan"] if verb == "plan" else [])]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            assert done.returncode == 2, f"status {done.returncode}: {done.stderr}"
            raise UserError(done.stderr)

    return read


def planned(path: Path) -> Path:
    return replaying.make_plan(path, replaying.Way())


NATIVE = pytest.mark.skipif(not REPLAYER.exists(), reason="the replayer is not built")
READERS = {
    "trace": reader.read,
    "foreign": foreign.read,
    "replay": pytest.param(planned, marks=NATIVE),
    "plan": pytest.param(native("plan"), marks=NATIVE),
    "run": pytest.param(native("run"), marks=NATIVE),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("what", ["missing", "empty", "folder", "pipe", "/dev/null", "/dev/zero"])
def test_what_is_no_file_with_something_in_it_is_named(
    read: Callable[[Path], object], what: str, tmp_path: Path
) -> None:
    path = Path(what) if what.startswith("/") else tmp_path / what
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "empty":
        path.touch()
    with pytest.raises((UserError, TraceError)) as error:
        read(path)
    assert str(path) in str(error.value) and str(error.value).strip().count("\n") == 0


def events(kinds: bytes, sizes: bytes = b"", refs: bytes = b"", extras: bytes = b"", **fields: int) -> bytes:
    columns = (kinds, sizes, b"", refs, b"", extras)
    payload = struct.pack("<6I", *map(len, columns)) + b"".join(columns)
    return block(BlockType.EVENTS, payload, events=len(kinds), **fields)


IMPOSSIBLE = {
    "events": (block(BlockType.EVENTS, ONE_BIRTH, events=2**32 - 1), "1 kinds for 4294967295 events"),
    "unpacked size": (block(BlockType.EVENTS, ONE_BIRTH, events=1, raw_bytes=2**32 - 1), "a block's header is"),
    "birth number": (block(BlockType.EVENTS, ONE_BIRTH, events=1, first_birth=2**64 - 1), "too large"),
    "time": (block(BlockType.EVENTS, ONE_BIRTH, events=1, first_time=2**64 - 1), "too large"),
    "size": (events(bytes([Kind.MALLOC]), HUGE_NUMBER[:-1] + b"\x00"), "a size or an alignment is impossible"),
    "reference": (events(bytes([1, Kind.FREE | layout.FOREIGN]), b"\x10", HUGE_NUMBER + b"\x00"), "before the first"),
    "unmade object": (events(bytes([Kind.FREE | layout.FOREIGN]), refs=b"\x05\x02"), "never made"),
    "frame of a TiB": (block(BlockType.EVENTS, SAYS_A_TIB, layout.ZSTD, events=1, raw_bytes=26), "unpacks to more"),
    "cut frame": (
        block(BlockType.EVENTS, zstandard.compress(ONE_BIRTH * 9)[:-3], layout.ZSTD, raw_bytes=234),
        "does not unpack",
    ),
    "deep text": (block(BlockType.META, b"[" * 200_000), "nested too deep"),
    "text of another kind": (block(BlockType.SUMMARY, b"[1]"), "no JSON object"),
    "text that is none": (block(BlockType.META, b"\xff\xfe"), "a block is wrong"),
    "curve": (block(BlockType.SAMPLES, b"\x80", events=1), "its last number is cut"),
    "stack": (block(BlockType.STACKS, b"\x01" + HUGE_NUMBER), "a stack is cut"),
    "type": (block(99, b""), "a block's type is 99"),
}


@pytest.mark.parametrize(("wrong", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_contents_under_right_checksums_are_named(wrong: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.fst"
    path.write_bytes(trace_of(BIRTH, block(BlockType.SUMMARY, b'{"end":"exit"}'), wrong))
    with pytest.raises(TraceError, match=rf"t\.fst: .*{re.escape(message)}"):
        reader.read(path)
    if REPLAYER.exists():
        try:
            native("plan")(path)
        except UserError as error:
            assert "t.fst: at byte " in str(error)


def test_a_trace_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.fst"
    path.write_bytes(trace_of(BIRTH, version=layout.VERSION + 1))
    for read in (reader.read, *([native("plan")] if REPLAYER.exists() else [])):
        with pytest.raises((TraceError, UserError), match="version 2; this reader knows 1"):
            read(path)


@pytest.mark.parametrize("thread", [0, 0x7FFFFFFF, 0xFFFFFFFE])
def test_a_thread_may_have_any_number(thread: int, tmp_path: Path) -> None:
    path = tmp_path / "t.fst"
    path.write_bytes(trace_of(block(BlockType.EVENTS, ONE_BIRTH, events=1, thread=thread)))
    assert [*reader.read(path).threads] == [thread]


@NATIVE
def test_a_call_that_asked_for_a_vast_alignment_and_failed_is_replayed(tmp_path: Path) -> None:
    columns = (bytes([Kind.POSIX_MEMALIGN | layout.FAILED]), b"\x10", bytes([50]), b"", b"", b"")
    payload = struct.pack("<6I", *map(len, columns)) + b"".join(columns)
    (tmp_path / "t.fst").write_bytes(trace_of(block(BlockType.EVENTS, payload, events=1)))
    made = replaying.replay(replaying.command(planned(tmp_path / "t.fst"), replaying.Way(idle_ms=0)))
    assert made["calls"] == 1 and made["dropped"] == 0


HEAPTRACK = b"v 10400 3\nt 1a 0\n+ 20 1 4056b0\n- 4056b0\n"
FOREIGN = {
    "zstd, cut": (zstandard.compress(HEAPTRACK)[:-2], "does not unpack: it is cut short"),
    "zstd, cut in the second frame": (zstandard.compress(HEAPTRACK) + zstandard.compress(HEAPTRACK)[:-2], "cut short"),
    "gzip, cut": (gzip.compress(HEAPTRACK)[:-9], "does not unpack"),
    "gzip, damaged": (gzip.compress(HEAPTRACK)[:12] + b"\xff" * 40, "does not unpack"),
    "mtrace, size": (b"= Start\n@ a:[0x1] + 0x10 0x" + b"f" * 40 + b"\n", "a size or an address in it is impossible"),
    "mtrace, address": (b"= Start\n@ a:[0x1] + 0x" + b"f" * 40 + b" 0x10\n", "impossible"),
    "heaptrack, size": (b"v 1 2\n+ " + b"f" * 20 + b" 1 10\n", "impossible"),
    "ltrace, size": (b"malloc(99999999999999999999999) = 0x10\n", "impossible"),
    "ltrace, product": (b"calloc(99999999999, 99999999999) = 0x10\n", "impossible"),
}


@pytest.mark.parametrize(("data", "message"), FOREIGN.values(), ids=FOREIGN)
def test_damaged_records_of_other_tools_are_named(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match=rf"r\.txt: .*{message}"):
        foreign.read(path)


def test_all_frames_of_a_record_are_read(tmp_path: Path) -> None:
    path = tmp_path / "h.zst"
    path.write_bytes(zstandard.compress(HEAPTRACK[:10]) + zstandard.compress(HEAPTRACK[10:]))
    assert foreign.read(path).events == 2
