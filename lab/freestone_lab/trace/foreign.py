"""Reads what other tools recorded: glibc's mtrace, heaptrack's data. One thread, and no time but order.

An address that is made again without having been freed is taken as freed; a free of what nobody made is left out.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zstandard

from freestone_lab.core import inputs
from freestone_lab.core.errors import UserError
from freestone_lab.trace.describe import Kind
from freestone_lab.trace.events import NONE, ROW, SIZES_END, Trace

STEP_NS = 1000
Call = tuple[Kind, int, int, int]  # kind, address or 0, its size, the old address of a realloc or 0


def read(path: Path) -> Trace:
    """The trace in a foreign file; UserError when it is none that is known."""
    data = inputs.read_whole(path)
    try:
        if data[:4] == b"\x28\xb5\x2f\xfd":
            data = _unpacked(data)
        elif data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (zstandard.ZstdError, zlib.error, OSError, EOFError) as error:
        raise UserError(f"{path}: does not unpack: {error}") from error
    lines = data.decode(errors="replace").splitlines()
    form = _form(lines)
    if form is None:
        raise UserError(f"{path}: expected glibc's mtrace or heaptrack's data")
    calls = list(_READERS[form](lines))
    if not calls:
        raise UserError(f"{path}: no allocation call was found in it")
    if any(max(numbers) >= SIZES_END for _, *numbers in calls):
        raise UserError(f"{path}: a size or an address in it is impossible")
    return _trace(path, form, calls)


def _unpacked(data: bytes) -> bytes:
    """One zstd frame after the other."""
    parts = []
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts.append(frame.decompress(data))
        if not frame.eof:
            raise EOFError("it is cut short")
        data = frame.unused_data
    return b"".join(parts)


def _form(lines: list[str]) -> str | None:
    for line in lines[:200]:
        if line.startswith("= Start") or re.match(r"@ .+ [+<>-] 0x", line):
            return "mtrace"
        if re.match(r"v [0-9a-f]+ [0-9a-f]+$", line):
            return "heaptrack"
    return None


def _mtrace(lines: list[str]) -> Iterator[Call]:
    """`@ place + 0xaddress 0xsize`, `- 0xaddress`, and `< 0xold` followed by `> 0xnew 0xsize`."""
    old = 0
    for line in lines:
        match = re.search(r"([+<>-]) 0x([0-9a-f]+)(?: 0x([0-9a-f]+))?$", line)
        if not match:
            continue
        sign, address, size = match[1], int(match[2], 16), int(match[3] or "0", 16)
        if sign == "+":
            yield Kind.MALLOC, address, size, 0
        elif sign == "-":
            yield Kind.FREE, address, 0, 0
        elif sign == "<":
            old = address
        else:
            yield Kind.REALLOC, address, size, old


def _heaptrack(lines: list[str]) -> Iterator[Call]:
    """`+ size trace address` and `- address` of the collector; `a size trace` defines, `+ i` and `- i` use, in the
    interpreter's form. Numbers are hexadecimal."""
    known: list[int] = []
    for line in lines:
        words = line.split()
        if not words:
            continue
        try:
            numbers = [int(word, 16) for word in words[1:]]
        except ValueError:
            continue
        if words[0] == "a" and len(numbers) >= 1:
            known.append(numbers[0])
        elif words[0] == "+" and len(numbers) == 3:
            yield Kind.MALLOC, numbers[2], numbers[0], 0
        elif words[0] == "-" and len(numbers) == 1 and not known:
            yield Kind.FREE, numbers[0], 0, 0


_READERS = {"mtrace": _mtrace, "heaptrack": _heaptrack}


def _trace(path: Path, form: str, calls: list[Call]) -> Trace:
    made: list[tuple[Kind, int, int]] = []  # kind, size, object
    live: dict[int, int] = {}  # by address
    lost = 0
    for kind, address, size, old in calls:
        if kind == Kind.FREE:
            if address in live:
                made.append((kind, 0, live.pop(address)))
            continue
        ended = live.pop(old, NONE) if kind == Kind.REALLOC else NONE
        if kind == Kind.REALLOC and ended == NONE:
            kind = Kind.REALLOC_NULL
        if address in live:
            made.append((Kind.LOST_FREE, 0, live.pop(address)))
            lost += 1
        live[address] = len(made)
        made.append((kind, size, ended))
    rows = np.zeros(len(made), ROW)
    rows["kind"], rows["size"], rows["object"] = np.array(made, dtype=np.int64).reshape(-1, 3).T
    rows["time"] = np.arange(len(rows))
    meta = {"program": path.stem, "allocator": "unknown", "source": form}
    return Trace(str(path), STEP_NS, 0, meta, {"end": "import", "lost_frees": lost}, rows)
