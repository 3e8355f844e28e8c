"""Varints of a whole column at once: seven bits a byte, the lowest first, the last byte without its high bit."""

from __future__ import annotations

from typing import Any

import numpy as np

U64 = np.ndarray[Any, np.dtype[np.uint64]]
MOST_BYTES = 10


def decode(data: bytes) -> U64:
    """The numbers in `data`. ValueError when the last one is cut, or one is longer than 64 bits."""
    raw = np.frombuffer(data, dtype=np.uint8)
    if raw.size == 0:
        return np.zeros(0, dtype=np.uint64)
    ends = np.flatnonzero(raw < 0x80)
    if ends.size == 0 or ends[-1] != raw.size - 1:
        raise ValueError("its last number is cut")
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > MOST_BYTES:
        raise ValueError("a number has more than 64 bits")
    values = np.zeros(ends.size, dtype=np.uint64)
    for place in range(longest):
        has = np.flatnonzero(lengths > place)
        part = (raw[starts[has] + place] & 0x7F).astype(np.uint64)
        values[has] |= part << np.uint64(7 * place)
    return values


def encode(values: U64) -> bytes:
    """The bytes of `values`."""
    rest = np.ascontiguousarray(values, dtype=np.uint64)
    if rest.size == 0:
        return b""
    lengths = np.ones(rest.size, dtype=np.int64)
    for place in range(1, MOST_BYTES):
        lengths += rest >> np.uint64(7 * place) != 0
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), dtype=np.uint8)
    for place in range(int(lengths.max())):
        has = np.flatnonzero(lengths > place)
        part = ((rest[has] >> np.uint64(7 * place)) & np.uint64(0x7F)).astype(np.uint8)
        out[starts[has] + place] = part | ((lengths[has] > place + 1).astype(np.uint8) << 7)
    return out.tobytes()


def zigzag(values: np.ndarray[Any, np.dtype[np.int64]]) -> U64:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def unzigzag(values: U64) -> np.ndarray[Any, np.dtype[np.int64]]:
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
