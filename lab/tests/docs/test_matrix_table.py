"""The table of what happens where the kernel refuses."""

from __future__ import annotations

from typing import Any

from freestone_lab.docs import matrix_table


def column(cells: int, passed: int, **excused: int) -> dict[str, Any]:
    return {"cells": cells, "skipped": 1, "passed": passed, "excused": excused, "findings": []}


def test_a_call_has_one_row_for_all_its_errors() -> None:
    columns = {
        "peace": column(9, 9),
        "mincore.EPERM": column(5, 4),
        "mincore.KILL": column(4, 1, void=2),
        "madvise.half": column(3, 2),
        "options.cache_bytes:0": column(3, 1, amounts=1),
    }
    text = matrix_table.table({"cells": 24, "machine": "here", "columns": columns})
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `mincore` | 7 | 5 | void (2) |",
        "| `madvise.half` | 2 | 2 |  |",
        "| `options.cache_bytes:0` | 2 | 1 | amounts (1) |",
    ]
    assert "24 runs" in text and "0 unexplained failures" in text
