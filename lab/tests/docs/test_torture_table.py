"""The table of what happens where the kernel refuses."""

from __future__ import annotations

from typing import Any

from freestone_lab.docs import matrix_table


def column(cells: int, passed: int, missing: int = 0, **excused: int) -> dict[str, Any]:
    return {"cells": cells, "missing": missing, "skipped": 0, "passed": passed, "excused": excused, "findings": []}


def result(columns: dict[str, dict[str, Any]]) -> dict[str, Any]:
    missing = sum(column["missing"] for column in columns.values())
    return {"tests": 9, "missing": missing, "cpu_seconds": 7, "machine": "here", "columns": columns}


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| `")]


def test_a_call_has_one_row_for_all_its_errors() -> None:
    columns = {
        "peace": column(9, 9),
        "mincore.EPERM": column(4, 4),
        "mincore.KILL": column(3, 1, void=2),
        "madvise.half": column(2, 2),
        "all.EPERM": column(2, 2),
        "options.cache_bytes:0": column(2, 1, amounts=1),
    }
    text = matrix_table.table(result(columns))
    assert rows(text) == [
        "| `mincore` | 7 | 5 | void (2) |",
        "| `madvise.half` | 2 | 2 |  |",
        "| `all.EPERM` | 2 | 2 |  |",
        "| `options.cache_bytes:0` | 2 | 1 | amounts (1) |",
    ]
    assert "13 runs of 9 tests" in text
    assert "0 unexplained failures" in text
    assert "missing" not in text


def test_what_has_not_run_is_named_and_has_no_row() -> None:
    columns = {"peace": column(9, 9), "a.half": column(2, 2), "b.half": column(1, 1, 3), "c.EPERM": column(0, 0, 4)}
    text = matrix_table.table(result(columns))
    assert "**Not whole yet: 7 runs are missing.** No run of `c`. Runs are missing of `b.half`." in text
    assert [row.split("|")[1].strip() for row in rows(text)] == ["`a.half`", "`b.half`"]
    del columns["a.half"]
    assert "No run of `c`. Runs are missing of all others." in matrix_table.table(result(columns))


def test_an_unexplained_failure_is_named() -> None:
    failing = column(2, 1)
    failing["findings"] = [{"axis": "a.half", "test": "abi.x.fast", "case": "Suite.Case"}]
    text = matrix_table.table(result({"a.half": failing}))
    assert "1 unexplained failures" in text
    assert "- Failed: `a.half`, `abi.x.fast`, `Suite.Case`" in text
