"""What several tests of traces need."""

from __future__ import annotations

import struct

from freestone_lab.trace import layout
from freestone_lab.trace.layout import BlockType

ONE_BIRTH = struct.pack("<6I", 1, 1, 0, 0, 0, 0) + b"\x01\x10"  # a malloc of 16 bytes


def with_right_checksums(data: bytearray) -> bytes:
    """A trace with its checksums made right: damage that only a decoder can find."""
    offset = layout.HEADER.size
    while offset + layout.BLOCK.size <= len(data) and data[offset : offset + 4] == b"FSTB":
        stored = int.from_bytes(data[offset + 24 : offset + 28], "little")
        begin = offset + layout.BLOCK.size
        data[offset + 28 : offset + 32] = layout.crc32c(bytes(data[begin : begin + stored])).to_bytes(4, "little")
        data[offset + 60 : offset + 64] = layout.crc32c(bytes(data[offset : offset + 60])).to_bytes(4, "little")
        offset = begin + stored
    return bytes(data)


def block(kind: int, payload: bytes, codec: int = layout.RAW, **fields: int) -> bytes:
    """A block whose checksums are right, whatever its header says."""
    names = ("process", "thread", "events", "raw_bytes", "first_time", "last_time", "first_birth")
    known = {**dict.fromkeys(names, 0), "raw_bytes": len(payload), **fields}
    crc = layout.crc32c(payload)
    packed = layout.BLOCK.pack(
        layout.BLOCK_MAGIC, kind, codec, 0, known["process"], known["thread"], known["events"], known["raw_bytes"],
        len(payload), crc, known["first_time"], known["last_time"], known["first_birth"], 0, 0,
    )  # fmt: skip
    return _with_crc(packed) + payload


def trace_of(*blocks: bytes, version: int = layout.VERSION) -> bytes:
    """A trace of these blocks, with a right header, index and end."""
    header = layout.HEADER.pack(layout.MAGIC, version, layout.HEADER.size, 0, 1000, 0, bytes(28), 0)
    out = _with_crc(header) + b"".join(blocks)
    index = block(BlockType.INDEX, bytes(len(blocks) * layout.INDEX.itemsize))
    return out + index + _with_crc(layout.END.pack(layout.END_MAGIC, len(out), len(blocks), 0, 0))


def _with_crc(packed: bytes) -> bytes:
    return packed[:-4] + layout.crc32c(packed[:-4]).to_bytes(4, "little")
