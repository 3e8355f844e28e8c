"""The cost of the checked memcpy in docs/HARDENING.md, made from docs/results/memory-calls.json."""

from __future__ import annotations

import shlex
from pathlib import Path

from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load
from freestone_lab.docs.pages import grid, section_from
from freestone_lab.workloads import memory_cost

DOCUMENT = Path("docs/HARDENING.md")
RESULT = Path("docs/results/memory-calls.json")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "memory calls", lambda path: table(load(path)))


def table(result: Result) -> str:
    said = f"Instructions that one `memcpy` takes, loop included,\n`{shlex.join(result.command)}` (`{RESULT}`):"
    headings = ("bytes", "libc", "checked, block to block", "checked, outside the heap")
    return f"{said}\n\n{grid(headings, memory_cost.rows(result), '---:')}"
