"""What happens where the kernel refuses, in docs/TORTURE.md: made from what the test torture.whole stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from freestone_lab.docs.pages import cell_text, grid, section_from, stored

DOCUMENT = Path("docs/TORTURE.md")
RESULT = Path("docs/results/torture.json")
SCHEMA = "freestone-torture/1"
COMMAND = "./freestone build all && ctest --test-dir build/release -R torture.whole"
BUILDS = ("fast", "hardened")
HEADINGS = ("what is refused or set", *BUILDS, "seconds", "calls refused")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "torture", lambda path: table(stored(path, SCHEMA, COMMAND)))


def table(result: dict[str, Any]) -> str:
    """One row for each axis, with both builds' outcome."""
    axes: dict[str, dict[str, dict[str, Any]]] = {}
    for row in result["rows"]:
        axes.setdefault(row["axis"], {})[row["build"]] = row
    passed = sum(row["outcome"] == "passed" for row in result["rows"])
    said = (
        f"{passed} of {len(result['rows'])} runs passed, in {result['seconds']} seconds (`{COMMAND}`,\n"
        f"seed {result['seed']:#x}, on {result['machine']}, `{RESULT}`)."
    )
    return f"{said}\n\n{grid(HEADINGS, [_row(name, runs, name in result['not_met']) for name, runs in axes.items()])}"


def _row(name: str, runs: dict[str, dict[str, Any]], not_met: bool) -> list[str]:
    found = [runs[build] for build in BUILDS if build in runs]
    outcomes = [cell_text(runs[build]["outcome"].partition("; ")[0]) if build in runs else "" for build in BUILDS]
    seconds = " / ".join(f"{run['seconds']:.1f}" for run in found)
    refused = "not met" if not_met else " / ".join(str(sum(run["refused"].values())) for run in found)
    return [f"`{name}`", *outcomes, seconds, refused]
