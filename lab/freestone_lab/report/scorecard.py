"""Five criteria in one score, with the reader's weights, and the weights at which the winner changes.

Throughput, latency and memory are measured: five points for the best allocator of the run, and half of them for twice
its cost. Tooling and security are shares of a checklist (`facts.json`; symbols are checked against what the library
really exports). An unknown item counts as absent and the score is marked as a lower bound.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Peer
from freestone_lab.report.overview import Analysis
from freestone_lab.report.quantity import Role

CRITERIA = ("throughput", "latency", "memory", "tooling", "security")
TITLES = {
    "throughput": "Throughput",
    "latency": "Latency",
    "memory": "Memory",
    "tooling": "Tooling",
    "security": "Maintenance, security",
}
MEASURED: dict[str, Role] = {"throughput": "speed", "latency": "latency", "memory": "memory"}
FULL = 5.0


@dataclass(frozen=True)
class Score:
    points: float
    lower_bound: bool = False  # some items of the checklist are not established
    why: str = ""


@dataclass(frozen=True)
class Flip:
    """At `weight` of `criterion` (the other weights unchanged) `winner` takes first place."""

    criterion: str
    weight: float
    winner: str
    upwards: bool


@dataclass(frozen=True)
class Scorecard:
    criteria: list[str]  # those that this run can speak about
    absent: list[str]
    weights: dict[str, float]
    rows: dict[str, dict[str, Score]]  # allocator to criterion to score; only allocators with every criterion
    unranked: dict[str, str]  # allocator to the reason
    totals: dict[str, float]
    winner: str | None
    flips: list[Flip]


@cache
def facts() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((Path(__file__).parent / "facts.json").read_text())
    return loaded


def family(peer: Peer) -> str | None:
    """The project that a peer belongs to: the longest family name that its name starts with."""
    name = peer.name.lower().replace("_", "-")
    known = [(key, alias) for key, entry in facts()["families"].items() for alias in entry["aliases"]]
    fitting = [(len(alias), key) for key, alias in known if name.startswith(alias)]
    return max(fitting)[1] if fitting else None


def checklist(peer: Peer, criterion: str) -> Score | None:
    """The share of the criterion's items that the peer has, out of five points; None for an unknown project."""
    key = family(peer)
    if key is None:
        return None
    answers: dict[str, float | list[Any] | None] = facts()["families"][key][criterion]
    earned, unknown, missing = 0.0, 0, []
    items = facts()["items"][criterion]
    for item in items:
        entry = answers.get(item["id"])
        answer, symbols = (entry[0], entry[1:]) if isinstance(entry, list) else (entry, [])
        if symbols and peer.exports and not any(s in peer.exports for s in symbols):
            answer = 0.0  # the library at hand does not export what the project is known for
        if answer is None:
            unknown += 1
        elif answer < 1:
            missing.append(item["title"])
        earned += answer or 0.0
    why = "has everything asked for" if not missing else "lacks or has in part: " + ", ".join(missing)
    return Score(FULL * earned / len(items), unknown > 0, why)


def measured(analysis: Analysis, criterion: str) -> dict[str, Score]:
    whole = {n: s.ratio for n, s in analysis.ranked.get(MEASURED[criterion], {}).items()}
    if not whole:
        return {}
    best = min(whole.values())
    return {n: Score(FULL * best / value, why=f"{value / best:.2f} times the best cost") for n, value in whole.items()}


def parse_weights(text: str) -> dict[str, float]:
    """`memory=2,latency=0.5` as a mapping. Raises UserError that names the piece that is not NAME=NUMBER."""
    found = {}
    for piece in text.split(","):
        name, _, value = piece.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise UserError(f"--weights: {piece.strip()!r} is not NAME=NUMBER, such as memory=2") from None
    check_weights(found)
    return found


def check_weights(weights: dict[str, float] | None) -> dict[str, float]:
    """The weights in full; equal when none are given. Raises UserError for unknown criteria and negative weights."""
    if weights is None:
        return dict.fromkeys(CRITERIA, 1.0)
    for name, value in weights.items():
        if name not in CRITERIA:
            raise UserError(f"--weights: unknown criterion {name!r}, expected one of {', '.join(CRITERIA)}")
        if not 0 <= value < float("inf"):
            raise UserError(f"--weights: {name} is {value}, expected a number of 0 or more")
    full = {name: weights.get(name, 0.0) for name in CRITERIA}
    if not any(full.values()):
        raise UserError("--weights: every weight is 0, expected at least one above")
    return full


def total(row: dict[str, Score], weights: dict[str, float], criteria: list[str]) -> float:
    whole = sum(weights[c] for c in criteria)
    return sum(weights[c] * row[c].points for c in criteria) / whole if whole else 0.0


def flips(rows: dict[str, dict[str, Score]], weights: dict[str, float], criteria: list[str], winner: str) -> list[Flip]:
    """For every criterion, the nearest weight below and above the present one at which another allocator wins.

    The weighted sum is linear in one weight w, so the lead over a rival is rest + w * slope;
    solved for a lead of 0.
    """
    found: list[Flip] = []
    for criterion in criteria:
        nearest: dict[bool, Flip] = {}
        for rival, row in rows.items():
            if rival == winner:
                continue
            slope = rows[winner][criterion].points - row[criterion].points
            rest = sum(weights[c] * (rows[winner][c].points - row[c].points) for c in criteria if c != criterion)
            if slope == 0:
                continue
            at = -rest / slope
            upwards = at > weights[criterion]
            if at < 0 or (slope > 0) == upwards:
                continue
            if upwards not in nearest or abs(at - weights[criterion]) < abs(
                nearest[upwards].weight - weights[criterion]
            ):
                nearest[upwards] = Flip(criterion, at, rival, upwards)
        found.extend(nearest.values())
    return found


def scorecard(analysis: Analysis, given: dict[str, float] | None = None) -> Scorecard:
    weights = check_weights(given)
    points: dict[str, dict[str, Score]] = {c: measured(analysis, c) for c in MEASURED}
    for criterion in ("tooling", "security"):
        points[criterion] = {
            peer.name: score for peer in analysis.candidates if (score := checklist(peer, criterion)) is not None
        }
    criteria = [c for c in CRITERIA if points[c]]
    absent = [c for c in CRITERIA if not points[c]]
    rows: dict[str, dict[str, Score]] = {}
    unranked: dict[str, str] = {}
    for peer in analysis.candidates:
        lacking = [TITLES[c] for c in criteria if peer.name not in points[c]]
        if analysis.unmeasured:
            unranked[peer.name] = "not every allocator was measured"
        elif peer.name in analysis.failed:
            unranked[peer.name] = "a run failed"
        elif lacking:
            unranked[peer.name] = "nothing known about: " + ", ".join(lacking).lower()
        else:
            rows[peer.name] = {c: points[c][peer.name] for c in criteria}
    totals = {name: total(row, weights, criteria) for name, row in rows.items()}
    ordered = dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
    winner = next(iter(ordered), None)
    return Scorecard(
        criteria,
        absent,
        weights,
        {name: rows[name] for name in ordered},
        unranked,
        ordered,
        winner,
        flips(rows, weights, criteria, winner) if winner and len(rows) > 1 else [],
    )
