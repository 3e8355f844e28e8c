"""The table of real programs in docs/COMPATIBILITY.md, made from what `freestone test --programs` stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from freestone_lab.docs.pages import differences, render, with_section, write_all
from freestone_lab.host import real_programs

DOCUMENT = Path("docs/COMPATIBILITY.md")
WORDS = {"same": "same", "differs": "**differs**", "fails": "**fails**"}


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while no result is stored."""
    if not (root / real_programs.RESULT).is_file():
        return {}
    page = (root / DOCUMENT).read_text(encoding="utf-8")
    return {DOCUMENT: with_section(page, DOCUMENT, "programs", table(real_programs.read(root / real_programs.RESULT)))}


def write(root: Path) -> list[Path]:
    return write_all(root, documents(root))


def outdated(root: Path) -> list[str]:
    return differences(root, documents(root))


def table(result: dict[str, Any]) -> str:
    judged = [row for row in result["programs"] if row["verdict"] in WORDS]
    left = [row for row in result["programs"] if row["verdict"] not in WORDS]
    return render(
        "programs.md.j2",
        same=sum(row["verdict"] == "same" for row in judged),
        judged=len(judged),
        machine=result["machine"],
        file=real_programs.RESULT,
        rows=[_cells(row) for row in judged],
        left=[f"{row['program']} ({_reason(row)})" for row in left],
    ).rstrip("\n")


def _cells(row: dict[str, Any]) -> list[str]:
    cpu, peak = row["cpu_s"], row["peak_kib"]
    cells = [row["program"], WORDS[row["verdict"]]]
    cells += [f"{cpu['none']:.2f}", _ratio(cpu, "fast"), _ratio(cpu, "hardened")]
    return [*cells, f"{peak['none'] / 1024:.0f}", _ratio(peak, "fast"), _ratio(peak, "hardened")]


def _ratio(figures: dict[str, float], name: str) -> str:
    return f"{figures[name] / figures['none']:.2f}" if figures["none"] else "-"


def _reason(row: dict[str, Any]) -> str:
    return " ".join(row["detail"].split())[:90] or row["verdict"]
