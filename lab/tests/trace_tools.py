"""What several tests of traces need: records of the test program, and damaged traces, which no tool writes."""

import struct
import subprocess
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.trace import recording

BUILD = paths.build_dir()
PROGRAM = BUILD / "trace_program"
REPLAYER = BUILD / recording.REPLAYER
BUILT = pytest.mark.skipif(not (PROGRAM.exists() and REPLAYER.exists()), reason="the recorder is not built")

# As in trace/include/freestone/trace.h.
HEADER, BLOCK, END = struct.Struct("<8sHHIQQ28sI"), struct.Struct("<4sBBHIIIIIIQQQII"), struct.Struct("<8sQQII")
META, EVENTS, SAMPLES, GAP, STACKS, SUMMARY, INDEX = range(1, 8)
RAW, ZSTD = 0, 1
FAILED, FOREIGN = 0x20, 0x40
ONE_BIRTH = struct.pack("<6I", 1, 1, 0, 0, 0, 0) + b"\x01\x10"  # a malloc of 16 bytes


def recorder(output: Path, *command: str, **options: object) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a recording."""
    return recording.command_line(recording.Request(output, command, **options))  # type: ignore[arg-type]


def record(output: Path, *command: str, **options: object) -> Path:
    """A recording of a command, which must end with status 0."""
    line, env = recorder(output, *command, **options)
    subprocess.run(line, env=env, check=True, capture_output=True)
    return output


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(crc >> 1) ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def with_right_checksums(data: bytearray) -> bytes:
    """A trace with its checksums made right: damage that only a decoder can find."""
    offset = HEADER.size
    while offset + BLOCK.size <= len(data) and data[offset : offset + 4] == b"FSTB":
        stored = int.from_bytes(data[offset + 24 : offset + 28], "little")
        begin = offset + BLOCK.size
        data[offset + 28 : offset + 32] = crc32c(bytes(data[begin : begin + stored]))
        data[offset + 60 : offset + 64] = crc32c(bytes(data[offset : offset + 60]))
        offset = begin + stored
    return bytes(data)


def block(kind: int, payload: bytes, codec: int = RAW, **fields: int) -> bytes:
    """A block whose checksums are right, whatever its header says."""
    names = ("process", "thread", "events", "raw_bytes", "first_time", "last_time", "first_birth")
    known = {**dict.fromkeys(names, 0), "raw_bytes": len(payload), **fields}
    crc = int.from_bytes(crc32c(payload), "little")
    numbers = [known[name] for name in names]
    packed = BLOCK.pack(b"FSTB", kind, codec, 0, *numbers[:4], len(payload), crc, *numbers[4:], 0, 0)
    return _with_crc(packed) + payload


def event_block(kinds: bytes, sizes: bytes = b"", aligns: bytes = b"", refs: bytes = b"", **fields: int) -> bytes:
    columns = (kinds, sizes, aligns, refs, b"", b"")
    return block(EVENTS, struct.pack("<6I", *map(len, columns)) + b"".join(columns), events=len(kinds), **fields)


def trace_of(*blocks: bytes, version: int = 1) -> bytes:
    """A trace of these blocks, with a right header, index and end."""
    out = _with_crc(HEADER.pack(b"FSTRACE\n", version, HEADER.size, 0, 1000, 0, bytes(28), 0)) + b"".join(blocks)
    index = block(INDEX, bytes(len(blocks) * 40))
    return out + index + _with_crc(END.pack(b"FSTREND\n", len(out), len(blocks), 0, 0))


def _with_crc(packed: bytes) -> bytes:
    return packed[:-4] + crc32c(packed[:-4])
