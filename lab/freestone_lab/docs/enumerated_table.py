"""The table of the enumerated attacks in docs/ATTACKS.md, made from docs/results/attacks/enumerated.json.gz."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path

from freestone_lab.attacks import enumerated
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load
from freestone_lab.docs.pages import grid, section_from

DOCUMENT = Path("docs/ATTACKS.md")
RESULT = Path("docs/results/attacks/enumerated.json.gz")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "enumerated", lambda path: table(load(path)))


def table(result: Result) -> str:
    made = enumerated.grid(result)
    rounds = max((int(experiment.params["rounds"]) for experiment in result.experiments), default=0)
    said = (
        f"Percent seen, trapped or without effect, rounded down, {rounds} of each kind with seed {result.seed}, "
        f"`{shlex.join(result.command)}` (`{RESULT}`). The worst kind of the first column comes first:"
    )
    said = textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False)
    notes = "".join(f"\n- {note}" for note in made.notes)
    return f"{said}\n\n{grid(made.headings, made.rows, '---:')}" + (f"\n{notes}" if notes else "")
