"""Records of other tools become traces."""

from pathlib import Path

import pytest
import zstandard
from trace_tools import BUILT

from freestone_lab.core.errors import UserError
from freestone_lab.trace import events, foreign
from freestone_lab.trace.describe import Kind

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

MALLOC, REALLOC, FREE = Kind.MALLOC, Kind.REALLOC, Kind.FREE
SAID = {
    "mtrace": (MTRACE, [(MALLOC, 0x20, -1), (MALLOC, 0x30, -1), (REALLOC, 0x400, 0), (FREE, 0, 1)]),
    "heaptrack": (HEAPTRACK, [(MALLOC, 0x20, -1), (MALLOC, 0x30, -1), (FREE, 0, 0), (FREE, 0, 1)]),
}


@BUILT
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("text", "said"), SAID.values(), ids=SAID)
def test_each_call_is_a_row(text: str, said: list[tuple[int, int, int]], packed: bool, tmp_path: Path) -> None:
    """Its kind, its size, and which row made the block that it ends."""
    path = tmp_path / "record"
    path.write_bytes(zstandard.compress(text.encode()) if packed else text.encode())
    events.write(foreign.read(path), tmp_path / "t.fst")
    rows = events.read(tmp_path / "t.fst").rows
    assert rows[["kind", "size", "object"]].tolist() == said


@pytest.mark.parametrize("text", ["", "hello\n", "= Start\n= End\n"])
def test_what_is_none_of_them_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=r"expected glibc's mtrace|no allocation call"):
        foreign.read(path)
