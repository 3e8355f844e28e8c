"""What happens where the kernel refuses, in docs/MATRIX.md: made from what the test matrix.whole stored."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from freestone_lab.docs.pages import cell_text, grid, section_from, stored

DOCUMENT = Path("docs/MATRIX.md")
RESULT = Path("docs/results/matrix.json")
SCHEMA = "freestone-matrix/2"
COMMAND = "ctest --test-dir build/release -R matrix.whole"
HEADINGS = ("what is refused or set", "runs", "passed whole", "what some cases miss, and why")


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    return section_from(root, DOCUMENT, RESULT, "matrix", lambda path: table(stored(path, SCHEMA, COMMAND)))


def table(result: dict[str, Any]) -> str:
    """One row for each call, whatever error it got, and one for each other axis. What has not run is named."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, column in result["columns"].items():
        if name != "peace":
            groups.setdefault(_group(name), []).append(column)
    findings = [finding for column in result["columns"].values() for finding in column["findings"]]
    runs = sum(column["cells"] for columns in groups.values() for column in columns)
    said = (
        f"{runs} runs of {result['tests']} tests (`{COMMAND}` on {result['machine']}, `{RESULT}`), "
        f"{result['cpu_seconds']} seconds of the processor, {len(findings)} unexplained failures."
    )
    parts = [_filled(said)]
    if result["missing"]:
        none = [name for name, columns in groups.items() if not any(column["cells"] for column in columns)]
        some = [name for name, columns in groups.items() if name not in none and _missing(columns)]
        others = "Runs are missing of all others." if len(none) + len(some) == len(groups) else ""
        named = _named("No run of", none) + (others or _named("Runs are missing of", some))
        parts.append(_filled(f"**Not whole yet: {result['missing']} runs are missing.** {named}".rstrip()))
    ran = [_row(name, columns) for name, columns in groups.items() if any(column["cells"] for column in columns)]
    parts.append(grid(HEADINGS, ran))
    if findings:
        parts.append("\n".join(f"- Failed: `{f['axis']}`, `{f['test']}`, `{f['case']}`" for f in findings))
    return "\n\n".join(parts)


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _named(words: str, names: Sequence[str]) -> str:
    return f"{words} {', '.join(f'`{name}`' for name in names)}. " if names else ""


def _missing(columns: Sequence[dict[str, Any]]) -> int:
    return sum(int(column["missing"]) for column in columns)


def _group(name: str) -> str:
    call, _, what = name.partition(".")
    return name if call in ("options", "all") or not what.isupper() else call


def _row(name: str, columns: Sequence[dict[str, Any]]) -> list[str]:
    reasons: dict[str, int] = {}
    for column in columns:
        for reason, count in column["excused"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    missed = "; ".join(f"{reason} ({count})" for reason, count in reasons.items())
    ran = sum(column["cells"] - column["skipped"] for column in columns)
    return [f"`{name}`", str(ran), str(sum(column["passed"] for column in columns)), cell_text(missed)]
