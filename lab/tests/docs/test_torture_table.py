"""The table of what happens where the kernel refuses."""

from __future__ import annotations

from typing import Any

from freestone_lab.docs import torture_table


def row(axis: str, build: str, outcome: str = "passed", **refused: int) -> dict[str, Any]:
    return {"axis": axis, "build": build, "outcome": outcome, "seconds": 1.5, "refused": refused}


def test_an_axis_has_one_row_with_both_builds() -> None:
    rows = [
        row("peace", "fast"),
        row("peace", "hardened"),
        row("munmap", "fast", munmap=3, mremap=4),
        row("munmap", "hardened", "ended by SIGSEGV; a|b", munmap=1),
        row("lseek", "fast"),
        row("seal_bytes:0", "hardened"),
    ]
    result = {"rows": rows, "seconds": 9, "seed": 255, "machine": "here", "not_met": ["lseek"]}
    text = torture_table.table(result)
    assert [line for line in text.splitlines() if line.startswith("| `")] == [
        "| `peace` | passed | passed | 1.5 / 1.5 | 0 / 0 |",
        "| `munmap` | passed | ended by SIGSEGV | 1.5 / 1.5 | 7 / 1 |",
        "| `lseek` | passed |  | 1.5 | not met |",
        "| `seal_bytes:0` |  | passed | 1.5 | 0 |",
    ]
    assert "5 of 6 runs passed, in 9 seconds" in text
    assert "seed 0xff" in text
