"""The tables of programs and suites in docs/COMPATIBILITY.md, made from what `freestone test --programs` stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from freestone_lab.docs.pages import render, stored, with_section
from freestone_lab.host import real_programs

DOCUMENT = Path("docs/COMPATIBILITY.md")
WORDS = {"same": "same", "differs": "**differs**", "fails": "**fails**"}


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    page = (root / DOCUMENT).read_text(encoding="utf-8")
    made = {"programs": (real_programs.RESULT, table), "suites": (real_programs.SUITES, suites)}
    present = {name: pair for name, pair in made.items() if (root / pair[0]).is_file()}
    for name, (path, text) in present.items():
        result = stored(root / path, real_programs.SCHEMA, real_programs.COMMAND)
        page = with_section(page, DOCUMENT, name, text(result))
    return {DOCUMENT: page} if present else {}


def table(result: dict[str, Any]) -> str:
    judged = [row for row in result["programs"] if row["verdict"] in WORDS]
    return _rendered("programs.md.j2", result, real_programs.RESULT, [_cells(row, []) for row in judged])


def suites(result: dict[str, Any]) -> str:
    judged = [row for row in result["programs"] if row["verdict"] in WORDS]
    rows = [_cells(row, [str(row["tests"]), str(row["processes"])]) for row in judged]
    notes = [f"{row['program']}: `{' '.join(row['detail'].split())}`" for row in judged if row["verdict"] != "same"]
    for row in (row for row in judged if row["left_out"]):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in row["left_out"].items())
        notes.append(f"Left out of {row['program']}'s: {reasons}.")
    return _rendered("suites.md.j2", result, real_programs.SUITES, rows, notes)


def _rendered(
    template: str, result: dict[str, Any], file: Path, rows: list[list[str]], notes: Sequence[str] = ()
) -> str:
    return render(
        template,
        same=sum(row["verdict"] == "same" for row in result["programs"]),
        judged=len(rows),
        machine=result["machine"],
        beside=_beside(result),
        file=file,
        rows=rows,
        notes=notes,
        left=[f"{row['program']} ({_reason(row)})" for row in result["programs"] if row["verdict"] not in WORDS],
    ).rstrip("\n")


def _beside(result: dict[str, Any]) -> str:
    busy = f"{result['busy_beside']:.1f}"
    return "" if busy == "0.0" else f"Other work kept {busy} of {result['processors']} processors busy meanwhile."


def _cells(row: dict[str, Any], counts: list[str]) -> list[str]:
    cpu, peak = row["cpu_s"], row["peak_kib"]
    cells = [row["program"], WORDS[row["verdict"]], *counts]
    cells += [f"{cpu['none']:.2f}", _ratio(cpu, "fast"), _ratio(cpu, "hardened")]
    return [*cells, f"{peak['none'] / 1024:.0f}", _ratio(peak, "fast"), _ratio(peak, "hardened")]


def _ratio(figures: dict[str, float], name: str) -> str:
    return f"{figures[name] / figures['none']:.2f}" if figures["none"] else "-"


def _reason(row: dict[str, Any]) -> str:
    return " ".join(row["detail"].split())[:90] or row["verdict"]
