"""Tables of an attack run: the verdicts per allocator, the share defended per family, and the list of what got through.

They are plain rows, for a terminal or for Markdown. The source is a Result of `attacks.run`, live or loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from freestone_lab.attacks.campaign import APART
from freestone_lab.attacks.judgement import DEFENDED, MEANINGS, VERDICTS, Verdict
from freestone_lab.core.result import Experiment, Result, Sample

_COUNTED: tuple[Verdict, ...] = tuple(verdict for verdict in VERDICTS if verdict != "not_applicable")
_PREFIX = "attacks/"


@dataclass(frozen=True)
class Grid:
    """A table as text: the first column names, the others hold cells."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Escape:
    """A case and size that got through at least once under one peer."""

    peer: str
    family: str
    pair: str
    counts: dict[Verdict, int]
    detail: str


def experiments(result: Result) -> list[Experiment]:
    """The attack families of a result file. Those counted apart come last."""
    return [experiment for experiment in result.experiments if experiment.workload == "attacks"]


def family(experiment: Experiment) -> str:
    return experiment.id.removeprefix(_PREFIX)


def sample_of(experiment: Experiment, peer: str) -> Sample | None:
    return next((sample for sample in experiment.samples if sample.peer == peer), None)


def totals(result: Result, peer: str) -> Counter[str]:
    """The verdicts of `peer` over all families but the one counted apart."""
    sums: Counter[str] = Counter()
    for experiment in experiments(result):
        sample = sample_of(experiment, peer)
        if family(experiment) != APART and sample is not None:
            sums.update({verdict: sample.counts.get(verdict, 0) for verdict in VERDICTS})
    return sums


def judged(sums: Counter[str]) -> int:
    """How many processes the totals count, without those to which a case did not apply."""
    return sum(sums[verdict] for verdict in _COUNTED)


def defended_share(result: Result, peer: str) -> float | None:
    """The share of judged processes that were reported, trapped or neutralised. None if none was judged."""
    sums = totals(result, peer)
    of = judged(sums)
    return sum(sums[verdict] for verdict in DEFENDED) / of if of else None


def percent(share: float) -> str:
    """A percentage with one decimal. It says 100 % or 0 % only if that is exact."""
    if 0.9995 <= share < 1:
        return ">99.9 %"
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share * 100:.1f} %"


def ranking(result: Result) -> list[str]:
    """The peers, best first. Those that could not be judged come last."""
    shares = {peer.name: defended_share(result, peer.name) for peer in result.peers}

    def share(name: str) -> float:
        found = shares[name]
        return -1.0 if found is None else found

    return sorted(shares, key=share, reverse=True)


def summary(result: Result) -> Grid:
    """Per allocator: share defended, then the share of every verdict."""
    rows = []
    notes = []
    for name in ranking(result):
        sums = totals(result, name)
        of = judged(sums)
        if of == 0:
            word, reason = _failure(result, name)
            rows.append((name, word, *("" for _ in _COUNTED), "0"))
            notes.append(f"{name}: {word}: {reason}")
            continue
        share = defended_share(result, name)
        assert share is not None
        cells = (percent(sums[verdict] / of) if sums[verdict] else "" for verdict in _COUNTED)
        rows.append((name, percent(share), *cells, str(of)))
    headings = ("allocator", "defended", *(verdict.replace("_", " ") for verdict in _COUNTED), "runs")
    return Grid("Attacks: all families", headings, rows, notes)


def by_family(result: Result) -> Grid:
    """Per allocator: the percentage defended in each family; those counted apart in the last column."""
    found = experiments(result)
    rows = []
    for name in ranking(result):
        cells = []
        for experiment in found:
            sample = sample_of(experiment, name)
            share = sample.figures.get("defended") if sample is not None else None
            cells.append("" if share is None else percent(share).removesuffix(" %"))
        rows.append((name, *cells))
    return Grid("Attacks: percentage defended by family", ("allocator", *(family(e) for e in found)), rows)


def escapes(result: Result, peer: str, *, apart: bool = False) -> list[Escape]:
    """Every case and size of `peer` with a verdict that is no defence, the most frequent first."""
    found = []
    for experiment in experiments(result):
        sample = sample_of(experiment, peer)
        if sample is None or (family(experiment) == APART) != apart:
            continue
        bad: dict[str, dict[Verdict, int]] = {}
        for key, count in sample.counts.items():
            pair, separator, word = key.rpartition("=")
            for verdict in _COUNTED:
                if separator and word == verdict and verdict not in DEFENDED:
                    bad.setdefault(pair, {})[verdict] = count
        examples = experiment.params.get("examples", {}).get(peer, {})
        for pair, counts in bad.items():
            details = examples.get(pair, {})
            detail = next((details[verdict] for verdict in counts if verdict in details), "")
            found.append(Escape(peer, family(experiment), pair, counts, detail))
    return sorted(found, key=lambda escape: (-sum(escape.counts.values()), escape.family, escape.pair))


def escape_grid(result: Result, peer: str, *, apart: bool = False) -> Grid:
    """What got through under one peer, with an example of what happened."""
    rows: list[tuple[str, ...]] = [
        (
            escape.pair,
            escape.family,
            ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in escape.counts.items()),
            escape.detail,
        )
        for escape in escapes(result, peer, apart=apart)
    ]
    title = f"{peer}: what got through" + (" (counted apart)" if apart else "")
    return Grid(title, ("case/size", "family", "runs", "for example"), rows)


def apart_notes(result: Result) -> list[str]:
    """Which cases are counted apart, and why; cases with one reason share a line."""
    reasons: dict[str, list[str]] = {}
    for experiment in experiments(result):
        if family(experiment) == APART:
            for caveat in experiment.caveats:
                case, _, reason = caveat.partition(": ")
                reasons.setdefault(reason, []).append(case)
    return [f"{', '.join(cases)}: {reason}" for reason, cases in reasons.items()]


def _failure(result: Result, peer: str) -> tuple[str, str]:
    for experiment in experiments(result):
        sample = sample_of(experiment, peer)
        if sample is not None and sample.status != "ok":
            return ("not loaded" if sample.status == "not_loaded" else "failed to start"), sample.detail
    return "not judged", "no case applies"


def markdown(result: Result, details_for: Sequence[str] = ()) -> str:
    """The whole account as Markdown; `details_for` names the peers whose escapes are listed."""
    lines = [
        "# Attack suite",
        "",
        f"{_pairs(result)} cases and sizes, {seeds(result)} seeds each; every attack in a process of its own, "
        "after its bug-free twin.",
        "",
    ]
    grids = [summary(result), by_family(result), *(escape_grid(result, peer) for peer in details_for)]
    for grid in grids:
        lines += [
            f"## {grid.title}",
            "",
            *markdown_rows(grid.headings, grid.rows),
            "",
            *(f"- {note}" for note in grid.notes),
        ]
        lines.append("")
    lines += ["## Verdicts", "", *(f"- **{v.replace('_', ' ')}**: {MEANINGS[v]}" for v in VERDICTS), ""]
    if apart_notes(result):
        lines += ["## Counted apart", "", *(f"- {note}" for note in apart_notes(result)), ""]
    return "\n".join(lines)


def _pairs(result: Result) -> int:
    return sum(int(experiment.params.get("pairs", 0)) for experiment in experiments(result))


def seeds(result: Result) -> int:
    return max((int(experiment.params.get("seeds", 0)) for experiment in experiments(result)), default=0)


def markdown_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: bool = True) -> list[str]:
    """The lines of a table. Numeric cells behind the first of each row are set to the right."""

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = ["---", *("---:" if numeric else "---" for _ in headings[1:])]
    return [row(headings), row(rule), *(row(r) for r in rows)]
