"""The steps from a finished run to a sample: figures, memory curve, digest of the output, a workload's JSON."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from freestone_lab.core.result import FigureSpec
from freestone_lab.measure.process import Run

PROCESS_SPECS: dict[str, FigureSpec] = {
    "wall": FigureSpec("s", "lower", "time"),
    "cpu": FigureSpec("s", "lower", "CPU time"),
    "user": FigureSpec("s", "lower", "user time"),
    "sys": FigureSpec("s", "lower", "system time"),
    "rss": FigureSpec("KiB", "lower", "peak memory"),
    "pss": FigureSpec("KiB", "lower", "peak proportional memory"),
    "minor_faults": FigureSpec("count", "lower", "page faults"),
    "major_faults": FigureSpec("count", "lower", "page faults that read a disk"),
}


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def process_figures(run: Run) -> dict[str, float]:
    """The figures that every process has."""
    figures = {
        "wall": run.wall_s,
        "cpu": run.user_s + run.sys_s,
        "user": run.user_s,
        "sys": run.sys_s,
        "rss": float(run.rss_kib),
        "minor_faults": float(run.minor_faults),
        "major_faults": float(run.major_faults),
    }
    if run.pss_kib is not None:
        figures["pss"] = float(run.pss_kib)
    return figures


def significant(value: float, digits: int = 6) -> float:
    """A measured value without digits that no measurement can know."""
    return float(f"{value:.{digits}g}")


def thin(series: Sequence[list[float]], limit: int) -> list[list[float]]:
    """At most about `limit` points of a curve, always including its peak."""
    if len(series) <= limit:
        return [list(p) for p in series]
    step = -(-len(series) // limit)
    groups = [series[i : i + step] for i in range(0, len(series), step)]
    found = [max(group, key=lambda point: point[1]) for group in groups]
    return found if found[-1] == list(series[-1]) else [*found, list(series[-1])]


def read_workload(stdout: Path) -> tuple[dict[str, Any] | None, str]:
    """The JSON object in the last line of a workload's output, or None and why not."""
    lines = stdout.read_text(errors="replace").strip().splitlines()
    if not lines:
        return None, "it printed nothing"
    try:
        raw = json.loads(lines[-1])
    except ValueError:
        return None, "its last line is not JSON"
    if not isinstance(raw, dict) or raw.get("schema") != "freestone-workload/1":
        return None, "its last line is not of the schema freestone-workload/1"
    return raw, ""
