"""The table of real programs in docs/COMPATIBILITY.md, made from what `freestone test --programs` stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from freestone_lab.docs.benchmarks import differences, with_section, write_all
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
    rows = result["programs"]
    judged = [row for row in rows if row["verdict"] in WORDS]
    same = sum(row["verdict"] == "same" for row in judged)
    left = [row for row in rows if row["verdict"] not in WORDS]
    lines = [
        f"{same} of {len(judged)} programs end with the same status and output under both libraries as without one "
        f"(`freestone test --programs` on {result['machine']}, `{real_programs.RESULT}`). CPU time and the largest "
        "process's peak memory are those of one run without a library, and the ratios to it under the fast and "
        "the hardened one; one run tells a crash from none, not a per cent. A peak below that of the process that "
        "starts the program, about 22 MiB, is not seen.",
        "",
        "| program | result | CPU, s | fast | hardened | peak, MiB | fast | hardened |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in judged:
        cpu, peak = row["cpu_s"], row["peak_kib"]
        cells = [f"{cpu['none']:.2f}", _ratio(cpu, "fast"), _ratio(cpu, "hardened")]
        cells += [f"{peak['none'] / 1024:.0f}", _ratio(peak, "fast"), _ratio(peak, "hardened")]
        lines.append(f"| {row['program']} | {WORDS[row['verdict']]} | " + " | ".join(cells) + " |")
    if left:
        names = ", ".join(f"{row['program']} ({_reason(row)})" for row in left)
        lines += ["", f"Not judged: {names}."]
    return "\n".join(lines)


def _ratio(figures: dict[str, float], name: str) -> str:
    return f"{figures[name] / figures['none']:.2f}" if figures["none"] else "-"


def _reason(row: dict[str, Any]) -> str:
    return " ".join(row["detail"].split())[:90] or row["verdict"]
