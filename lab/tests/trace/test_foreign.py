"""Records of other tools become traces."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from freestone_lab.core.errors import UserError
from freestone_lab.trace import foreign, reader, writer
from freestone_lab.trace.layout import Kind

MTRACE = """= Start
@ ./app:[0x401136] + 0x4056b0 0x20
@ ./app:[0x401140] + 0x4056e0 0x30
@ ./app:[0x40114a] < 0x4056b0
@ ./app:[0x40114a] > 0x405720 0x400
@ ./app:[0x401154] - 0x4056e0
@ ./app:[0x401154] - 0x999999
= End
"""
HEAPTRACK = """v 10400 3
X ./app
t 1a 0
+ 20 1 4056b0
+ 30 1 4056e0
- 4056b0
c 5
- 4056e0
"""
LTRACE = """app->malloc(32) = 0x4056b0
app->calloc(3, 16) = 0x4056e0
app->realloc(0x4056b0, 1024) = 0x405720
app->free(0x4056e0) = <void>
app->free(nil) = <void>
"""


def steps(path: Path, tmp_path: Path) -> list[tuple[Kind, int, int, int]]:
    writer.write(foreign.read(path), tmp_path / "t.fst")
    events = reader.read(tmp_path / "t.fst").threads[0]
    columns = (events.kinds, events.sizes, events.births, events.ref_births)
    return [(Kind(int(k)), int(s), int(b), int(r)) for k, s, b, r in zip(*columns, strict=True)]


def test_mtrace(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    path.write_text(MTRACE)
    assert steps(path, tmp_path) == [
        (Kind.MALLOC, 0x20, 0, -1), (Kind.MALLOC, 0x30, 1, -1), (Kind.REALLOC, 0x400, 2, 0), (Kind.FREE, -1, -1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_heaptrack(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "h.zst"
    path.write_bytes(zstandard.compress(HEAPTRACK.encode()) if packed else HEAPTRACK.encode())
    assert steps(path, tmp_path) == [
        (Kind.MALLOC, 0x20, 0, -1), (Kind.MALLOC, 0x30, 1, -1), (Kind.FREE, -1, -1, 0), (Kind.FREE, -1, -1, 1),
    ]  # fmt: skip


def test_ltrace(tmp_path: Path) -> None:
    path = tmp_path / "l.txt"
    path.write_text(LTRACE)
    assert steps(path, tmp_path) == [
        (Kind.MALLOC, 32, 0, -1), (Kind.CALLOC, 48, 1, -1), (Kind.REALLOC, 1024, 2, 0), (Kind.FREE, -1, -1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "hello\n", "= Start\n= End\n"])
def test_what_is_none_of_them_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=r"expected glibc's mtrace|no allocation call"):
        foreign.read(path)
