"""What a load generator says about the server: requests per second and latencies, read from its own output.

It recognises these by what they print: wrk, ab, hey, redis-benchmark, memtier_benchmark, pgbench. If one output has
several tests (redis-benchmark's), each figure is their geometric mean. An unknown generator has no figures here; the
load's wall time takes their place.
"""

import csv
import math
import re
from collections.abc import Callable, Sequence
from functools import partial

from freestone_lab.core.result import FigureSpec

Figures = dict[str, float]

RATE = "requests"
PER_REQUEST = "cpu_per_request"
SPECS: dict[str, FigureSpec] = {
    RATE: FigureSpec("ops/s", "higher", "requests per second"),
    PER_REQUEST: FigureSpec("s", "lower", "CPU time of the server per request"),
    "latency": FigureSpec("s", "lower", "mean latency"),
    "p50": FigureSpec("s", "lower", "median latency"),
    "p99": FigureSpec("s", "lower", "99 % latency"),
    "p999": FigureSpec("s", "lower", "99.9 % latency"),
}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_NAMES = {"50": "p50", "99": "p99", "99.9": "p999"}


# Those that print a rate and percentiles: what else tells them, both as patterns, and by which factor the time of a
# percentile counts that has no unit. ab counts whole milliseconds.
PLAIN = {
    "wrk": ("Running", r"^Requests/sec:\s+([\d.]+)", r"^\s+([\d.]+)%\s+([\d.]+)(us|ms|s|m)\s*$", 1.0),
    "ab": (
        "Requests per second:", r"^Requests per second:\s+([\d.]+) \[#/sec\]",
        r"^\s+(\d+)%\s+(\d+)()(?:\s+\(longest request\))?\s*$", 1e-3,
    ),
    "hey": ("Latency distribution:", r"Requests/sec:\s+([\d.]+)", r"^\s+([\d.]+)%+ in ([\d.]+)() secs", 1.0),
}  # fmt: skip


def _percentile(text: str) -> str | None:
    """The figure that a percentage such as `99.900` names."""
    return _NAMES.get(f"{float(text):g}")


def _plain(generator: str, text: str) -> Figures:
    word, rate_of, percentiles, factor = PLAIN[generator]
    rate = re.search(rate_of, text, re.MULTILINE)
    if word not in text or rate is None:
        return {}
    found = {RATE: float(rate[1])}
    for percent, value, unit in re.findall(percentiles, text, re.MULTILINE):
        if name := _percentile(percent):
            found[name] = float(value) * _UNITS.get(unit, factor)
    return found


def _redis_csv(text: str) -> list[Figures]:
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines or not lines[0].startswith('"test","rps"'):
        return []
    tests = []
    for row in csv.DictReader(lines):
        test = {RATE: float(row["rps"])}
        for name in ("p50", "p99"):
            if row.get(f"{name}_latency_ms"):
                test[name] = float(row[f"{name}_latency_ms"]) * 1e-3
        tests.append(test)
    return tests


def _redis_quiet(text: str) -> list[Figures]:
    pattern = r"^.*: ([\d.]+) requests per second, p50=([\d.]+) msec"
    return [{RATE: float(r), "p50": float(p) * 1e-3} for r, p in re.findall(pattern, text, re.MULTILINE)]


def _redis_long(text: str) -> list[Figures]:
    tests = []
    for part in re.split(r"(?=^====== )", text, flags=re.MULTILINE):
        rate = re.search(r"throughput summary: ([\d.]+) requests per second", part)
        if rate is None:
            continue
        test = {RATE: float(rate[1])}
        table = re.search(r"latency summary \(msec\):\s*\n(.+)\n(.+)", part)
        if table is not None:
            values = dict(zip(table[1].split(), table[2].split(), strict=False))
            test |= {name: float(values[name]) * 1e-3 for name in ("p50", "p99") if name in values}
        tests.append(test)
    return tests


def _redis(text: str) -> Figures:
    lines = text.replace("\r", "\n")
    return _together(_redis_csv(lines) or _redis_quiet(lines) or _redis_long(lines))


def _memtier(text: str) -> Figures:
    header = re.search(r"^Type\s+Ops/sec.*$", text, re.MULTILINE)
    totals = re.search(r"^Totals\s+(.*)$", text, re.MULTILINE)
    if header is None or totals is None:
        return {}
    columns = re.split(r"\s{2,}", header[0].strip())[1:]
    values = dict(zip(columns, totals[1].split(), strict=False))
    found = {RATE: float(values["Ops/sec"])}
    for column, value in values.items():
        match = re.fullmatch(r"p([\d.]+) Latency", column)
        if match and (name := _percentile(match[1])):
            found[name] = float(value) * 1e-3
    return found


def _pgbench(text: str) -> Figures:
    rate = re.search(r"^tps = ([\d.]+)(?: \((?:without initial|excluding) connect.*\))?", text, re.MULTILINE)
    if rate is None:
        return {}
    found = {RATE: float(rate[1])}
    if mean := re.search(r"^latency average = ([\d.]+) ms", text, re.MULTILINE):
        found["latency"] = float(mean[1]) * 1e-3
    return found


def _together(tests: Sequence[Figures]) -> Figures:
    """Merges several tests into the figures that all of them have."""
    if not tests:
        return {}
    names = [n for n in tests[0] if all(t.get(n, 0) > 0 for t in tests)]
    return {n: math.exp(math.fsum(math.log(t[n]) for t in tests) / len(tests)) for n in names}


GENERATORS: dict[str, Callable[[str], Figures]] = {
    **{name: partial(_plain, name) for name in PLAIN},
    "redis-benchmark": _redis,
    "memtier_benchmark": _memtier,
    "pgbench": _pgbench,
}


def read(text: str) -> tuple[str, Figures]:
    """The generator that printed `text`, and its figures. Both are empty for an unknown one."""
    for name, parse in GENERATORS.items():
        if figures := parse(text):
            return name, {k: v for k, v in figures.items() if v > 0}
    return "", {}
