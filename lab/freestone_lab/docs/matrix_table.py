"""What happens where the kernel refuses, in docs/COMPATIBILITY.md: made from what the test matrix.whole stored.

The command `docs` takes it in once there is a first whole result, with a section of that name in the document.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from freestone_lab.docs.pages import cell_text, grid, section_from, stored

DOCUMENT = Path("docs/COMPATIBILITY.md")
RESULT = Path("docs/results/matrix.json")
SCHEMA = "freestone-matrix/1"
COMMAND = "ctest --test-dir build/release -R matrix.whole"


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "matrix", lambda path: table(stored(path, SCHEMA, COMMAND)))


def table(result: dict[str, Any]) -> str:
    """One row for each call, whatever error it got, and one for each other axis."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, column in result["columns"].items():
        if name != "peace":
            groups.setdefault(_group(name), []).append(column)
    rows = [_row(name, columns) for name, columns in groups.items()]
    findings = sum(len(column["findings"]) for column in result["columns"].values())
    said = (
        f"{result['cells']} runs of the library's tests (`{COMMAND}` on {result['machine']}, `{RESULT}`), "
        f"{findings} unexplained failures:"
    )
    return (
        f"{said}\n\n{grid(('what is refused or set', 'runs', 'passed whole', 'what some cases miss, and why'), rows)}"
    )


def _group(name: str) -> str:
    call, _, what = name.partition(".")
    return name if call == "options" or not what.isupper() else call


def _row(name: str, columns: list[dict[str, Any]]) -> list[str]:
    reasons: dict[str, int] = {}
    for column in columns:
        for reason, count in column["excused"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    missed = "; ".join(f"{reason} ({count})" for reason, count in reasons.items())
    ran = sum(column["cells"] - column["skipped"] for column in columns)
    return [f"`{name}`", str(ran), str(sum(column["passed"] for column in columns)), cell_text(missed)]
