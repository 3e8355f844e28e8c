"""The cost of the checked memcpy in docs/HARDENING.md, made from docs/results/memory-calls.json."""

from __future__ import annotations

import shlex
from pathlib import Path

from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load
from freestone_lab.docs.pages import grid, with_section
from freestone_lab.workloads import memory_cost

DOCUMENT = Path("docs/HARDENING.md")
RESULT = Path("docs/results/memory-calls.json")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    if not (root / RESULT).is_file():
        return {}
    page = (root / DOCUMENT).read_text(encoding="utf-8")
    return {DOCUMENT: with_section(page, DOCUMENT, "memory calls", table(load(root / RESULT)))}


def table(result: Result) -> str:
    said = f"Instructions that one `memcpy` takes, loop included,\n`{shlex.join(result.command)}` (`{RESULT}`):"
    headings = ("bytes", "libc", "checked, block to block", "checked, outside the heap")
    return f"{said}\n\n{grid(headings, memory_cost.rows(result), '---:')}"
