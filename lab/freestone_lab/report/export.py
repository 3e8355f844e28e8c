"""A result in other tools' formats: CSV (every sample), Markdown (the tables), Google-Benchmark JSON."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from freestone_lab.analysis.claims import Table, change, headline, verdict_word
from freestone_lab.analysis.decision import decide, evidence_of
from freestone_lab.core import outputs
from freestone_lab.core.result import Result
from freestone_lab.report.card import one_line
from freestone_lab.report.quantity import show

_NANOSECONDS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


def verdict_of(table: Table) -> str:
    """The answer of one experiment in one sentence."""
    evidence = evidence_of(table.experiment, table.baseline, table.controls)
    return one_line(evidence, decide(evidence))


def write_csv(result: Result, file: TextIO) -> None:
    """One line per sample and figure; failed samples have one line with an empty figure."""
    writer = csv.writer(file)
    writer.writerow(["experiment", "peer", "round", "status", "detail", "figure", "unit", "value"])
    for experiment in result.experiments:
        for s in experiment.samples:
            head = [experiment.id, s.peer, s.round, s.status, s.detail]
            if not s.figures:
                writer.writerow([*head, "", "", ""])
            for name, value in s.figures.items():
                writer.writerow([*head, name, experiment.specs[name].unit, repr(value)])


def _markdown_table(table: Table, figures: list[str]) -> list[str]:
    specs = table.experiment.specs
    heads = ["allocator"]
    for name in figures:
        heads += [specs[name].label or name, f"against {table.baseline}", "verdict"]
    lines = [f"### {table.experiment.id}", "", verdict_of(table) + ".", ""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in table.rows:
        if row.status != "ok":
            lines.append(f"| {row.peer} | **{row.status}**: {row.detail} |" + " |" * (len(heads) - 2))
            continue
        cells = [row.peer]
        for name in figures:
            cell = row.cells.get(name)
            if cell is None:
                cells += ["", "", ""]
                continue
            e = cell.estimate
            cells.append(f"{show(cell.typical, specs[name].unit)} ± {cell.summary.spread:.1%}")
            cells.append(change(e) if e else "baseline")
            cells.append(verdict_word(cell.verdict, specs[name]) if e and row.peer not in table.controls else "")
        lines.append("| " + " | ".join(cells) + " |")
    runs = max((row.runs for row in table.rows), default=0)
    said = [f"{runs} {'round' if runs == 1 else 'rounds'}, a fresh process each; brackets hold 95 % intervals"]
    said += [line] if (line := noise(table, figures)) else []
    lines += ["", *(f"- {text}" for text in (*said, *table.experiment.caveats))]
    return lines


def noise(table: Table, figures: Sequence[str]) -> str:
    """What the baseline showed against itself, in words; "" without a control."""
    specs, floors = table.experiment.specs, table.floors
    shown = [f"{specs[n].label or n} {floors[n] * 100:.1f} %" for n in figures if not math.isinf(floors[n])]
    return f"noise floor (the baseline against itself): {', '.join(shown)}" if shown else ""


def markdown(tables: Sequence[Table], figures: list[str] | None = None) -> str:
    """The tables of a result; `figures` defaults to each experiment's headline."""
    lines: list[str] = []
    for table in tables:
        chosen = [f for f in (figures or headline(table.experiment)) if f in table.experiment.specs]
        lines += [*_markdown_table(table, chosen), ""]
    return "\n".join(lines)


def google_benchmark(result: Result) -> dict[str, Any]:
    """The JSON that Google Benchmark's compare.py reads: one iteration entry per good sample, in nanoseconds."""
    cpu = result.fingerprint.get("cpu", {})
    benchmarks: list[dict[str, Any]] = []
    for experiment in result.experiments:
        for s in experiment.samples:
            if s.status != "ok" or s.round < 1 or "wall" not in s.figures:
                continue
            name = f"{experiment.id}/{s.peer}"
            scale = _NANOSECONDS[experiment.specs["wall"].unit]
            benchmarks.append(
                {
                    "name": name,
                    "run_name": name,
                    "run_type": "iteration",
                    "repetitions": sum(o.peer == s.peer and o.round > 0 for o in experiment.samples),
                    "repetition_index": s.round - 1,
                    "threads": 1,
                    "iterations": 1,
                    "real_time": s.figures["wall"] * scale,
                    "cpu_time": s.figures.get("cpu", 0.0) * scale,
                    "time_unit": "ns",
                    **{k: v for k, v in s.figures.items() if k not in ("wall", "cpu")},
                }
            )
    return {
        "context": {
            "date": result.created,
            "host_name": "",
            "executable": " ".join(result.command),
            "num_cpus": result.fingerprint.get("cpus", 0),
            "mhz_per_cpu": round(float(cpu.get("cpu MHz") or 0)),
            "cpu_scaling_enabled": result.fingerprint.get("governor", "") not in ("", "performance"),
            "load_avg": [result.fingerprint.get("load", 0.0)],
            "library_build_type": "release",
        },
        "benchmarks": benchmarks,
    }


def write_google_benchmark(result: Result, path: Path) -> None:
    outputs.write_whole(path, json.dumps(google_benchmark(result), indent=1))
