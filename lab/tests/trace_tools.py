"""What several tests of traces need."""

from __future__ import annotations

from freestone_lab.trace import layout


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
