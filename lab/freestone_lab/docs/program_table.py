"""The tables of programs and suites in docs/PROGRAMS.md and of roots in docs/COMPATIBILITY.md.

They are made from what `freestone test --programs` stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from freestone_lab.docs.pages import render, stored, with_section
from freestone_lab.host import real_programs

PROGRAMS = Path("docs/PROGRAMS.md")
COMPATIBILITY = Path("docs/COMPATIBILITY.md")
WORDS = {"same": "same", "differs": "**differs**", "fails": "**fails**"}


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    made = [
        (PROGRAMS, "programs", real_programs.RESULT, real_programs.SCHEMA, table),
        (PROGRAMS, "suites", real_programs.SUITES, real_programs.SCHEMA, suites),
        (COMPATIBILITY, "roots", real_programs.ROOTS, real_programs.ROOTS_SCHEMA, roots),
    ]
    pages: dict[Path, str] = {}
    for document, name, path, schema, text in made:
        if (root / path).is_file():
            page = pages.get(document) or (root / document).read_text(encoding="utf-8")
            result = stored(root / path, schema, real_programs.COMMAND)
            pages[document] = with_section(page, document, name, text(result))
    return pages


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


def roots(result: dict[str, Any]) -> str:
    return render(
        "roots.md.j2",
        machine=result["machine"],
        file=real_programs.ROOTS,
        rows=[_root_cells(root) for root in result["roots"]],
        programs=sorted({name for root in result["roots"] for name in root["programs"]}),
        unrun=sorted({package for root in result["roots"] for package, name in root["linked"].items() if not name}),
        tests=sorted({name.rpartition(".")[0] for root in result["roots"] for name in root["tests"]}),
    ).rstrip("\n")


def _root_cells(root: dict[str, Any]) -> list[str]:
    outcomes = [*root["programs"].items(), *root["tests"].items()]
    bad = [f"**{name} {outcome}**" for name, outcome in outcomes if outcome in ("fails", "differs", "failed")]
    left = [name for name, outcome in outcomes if outcome in ("skipped", "unsteady")]
    same, passed = (sum(o == good for _, o in outcomes) for good in ("same", "passed"))
    linked = f"{sum(map(bool, root['linked'].values()))} of {len(root['linked'])}"
    return [root["name"], root["glibc"], str(same), str(passed), linked, *(", ".join(n) or "none" for n in (bad, left))]


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
        own=[row["program"] for row in result["programs"] if row["verdict"] == "same" and row.get("own_malloc")],
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
