"""The layout of a trace file: structures, kinds and checksums, as in trace/include/freestone/trace.h."""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

MAGIC = b"FSTRACE\n"
END_MAGIC = b"FSTREND\n"
VERSION = 1
BLOCK_MAGIC = 0x42545346
HEADER = struct.Struct("<8sHHIQQ28sI")
BLOCK = struct.Struct("<IBBHIIIIIIQQQII")
END = struct.Struct("<8sQQII")
MOST_PAYLOAD = 64 << 20
SIZES_END = 1 << 48  # the recorder keeps the lower 48 bits of a size
MOST_ALIGN_LOG2 = 63
ALL = 0xFFFFFFFF
INDEX = np.dtype(
    [
        ("offset", "<u8"),
        ("type", "<u4"),
        ("process", "<u4"),
        ("thread", "<u4"),
        ("events", "<u4"),
        ("first_time", "<u8"),
        ("last_time", "<u8"),
    ]
)
RAW, ZSTD = 0, 1
COLUMNS = 6  # kinds, sizes, aligns, refs, times, extras

KIND_MASK, FAILED, FOREIGN, TIMED = 0x1F, 0x20, 0x40, 0x80


class BlockType(IntEnum):
    META = 1
    EVENTS = 2
    SAMPLES = 3
    GAP = 4
    STACKS = 5
    SUMMARY = 6
    INDEX = 7


class Kind(IntEnum):
    MALLOC = 1
    CALLOC = 2
    ALIGNED_ALLOC = 3
    POSIX_MEMALIGN = 4
    MEMALIGN = 5
    VALLOC = 6
    PVALLOC = 7
    NEW = 8
    NEW_ARRAY = 9
    NEW_ALIGNED = 10
    NEW_ARRAY_ALIGNED = 11
    REALLOC_NULL = 12
    REALLOC = 13
    FREE = 14
    FREE_SIZED = 15
    FREE_ALIGNED_SIZED = 16
    DELETE = 17
    DELETE_ARRAY = 18
    DELETE_SIZED = 19
    DELETE_ARRAY_SIZED = 20
    DELETE_ALIGNED = 21
    DELETE_ARRAY_ALIGNED = 22
    REALLOC_ZERO = 23
    LOST_FREE = 24
    THREAD_START = 25
    THREAD_END = 26
    FORK = 27
    TOUCH = 28


def _table(*kinds: Kind) -> np.ndarray[Any, np.dtype[np.bool_]]:
    table = np.zeros(32, dtype=bool)
    table[list(kinds)] = True
    return table


# Indexed by a kind.
IS_BIRTH = _table(*(k for k in Kind if k <= Kind.REALLOC))
IS_DEATH = _table(*(k for k in Kind if Kind.REALLOC <= k <= Kind.LOST_FREE))
HAS_REFERENCE = IS_DEATH | _table(Kind.TOUCH)
HAS_EXTRA = _table(Kind.FORK, Kind.TOUCH)
IS_ALIGNED = _table(
    Kind.ALIGNED_ALLOC, Kind.POSIX_MEMALIGN, Kind.MEMALIGN, Kind.NEW_ALIGNED, Kind.NEW_ARRAY_ALIGNED
)  # fmt: skip
IS_KNOWN = _table(*Kind)


@cache
def _crc_tables() -> list[list[int]]:
    first = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        first.append(crc)
    tables = [first]
    for _ in range(7):
        tables.append([(value >> 8) ^ first[value & 0xFF] for value in tables[-1]])
    return tables


@cache
def _shift_matrix(count: int) -> tuple[int, ...]:
    """What `count` zero bytes do to each bit of a checksum."""
    if count == 1:
        first = _crc_tables()[0]
        return tuple(((1 << bit) >> 8) ^ first[(1 << bit) & 0xFF] for bit in range(32))
    half = _shift_matrix(count // 2)
    double = tuple(_apply(half, value) for value in half)
    return double if count % 2 == 0 else tuple(_apply(_shift_matrix(1), value) for value in double)


def _apply(matrix: tuple[int, ...], value: int) -> int:
    result = 0
    bit = 0
    while value:
        if value & 1:
            result ^= matrix[bit]
        value >>= 1
        bit += 1
    return result


LANES = 256


def crc32c(data: bytes) -> int:
    """CRC-32C of `data`; long data in lanes that numpy folds side by side."""
    if len(data) < 16 * LANES:
        return _crc_bytes(data, 0xFFFFFFFF) ^ 0xFFFFFFFF
    lane = len(data) // LANES
    table = np.array(_crc_tables()[0], dtype=np.uint32)
    rows = np.frombuffer(data, dtype=np.uint8, count=lane * LANES).reshape(LANES, lane).T.astype(np.uint32)
    state = np.zeros(LANES, dtype=np.uint32)
    state[0] = 0xFFFFFFFF
    for row in np.ascontiguousarray(rows):
        state = (state >> np.uint32(8)) ^ table[(state ^ row) & np.uint32(0xFF)]
    matrix = _shift_matrix(lane)
    crc = int(state[0])
    for value in state[1:]:
        crc = _apply(matrix, crc) ^ int(value)
    return _crc_bytes(data[lane * LANES :], crc) ^ 0xFFFFFFFF


def _crc_bytes(data: bytes, crc: int) -> int:
    table = _crc_tables()[0]
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc
