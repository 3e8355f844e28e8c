"""The verdict in words. It claims an order only where the paired comparison does; otherwise it says that it cannot."""

import math
from dataclasses import dataclass

from freestone_lab.analysis import inference
from freestone_lab.analysis.sequential import LEAST_ROUNDS, least_rounds
from freestone_lab.report.overview import Analysis, Overall, pair
from freestone_lab.report.quantity import Role, percent_change, ratio, span

MEASURE: dict[Role, str] = {"speed": "time", "latency": "latency", "memory": "memory"}
MOST_NAMED = 3  # in the sentence; more stand below it
LEAD: dict[Role, str] = {"speed": "fastest", "latency": "lowest in latency", "memory": "smallest in memory"}


@dataclass(frozen=True)
class Conclusion:
    """The answer in one sentence, and the sentences that qualify it."""

    sentence: str
    details: list[str]


@dataclass(frozen=True)
class Lead:
    """Who is ahead in one role: the best, and those that cannot be told from it."""

    role: Role
    names: list[str]
    best: Overall
    field: int  # how many were eligible


def join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def told_apart(analysis: Analysis, role: Role, best: str, others: list[str]) -> set[str]:
    """The allocators that are shown to be worse than `best`, compared with it directly."""
    estimates = {o: pair(analysis, role, o, best)[0] for o in others}
    return {o for o, e in estimates.items() if inference.verdict(e, analysis.floors[role], "lower") == "worse"}


def leads(analysis: Analysis) -> list[Lead]:
    """The leader of every measured role, among the allocators that finished everything."""
    found = []
    for role, scores in analysis.ranked.items():
        if len(scores) < 2:
            continue
        order = sorted(scores, key=lambda n: scores[n].ratio)
        worse = told_apart(analysis, role, order[0], order[1:])
        found.append(Lead(role, [n for n in order if n not in worse], scores[order[0]], len(scores)))
    return found


def evidence(lead: Lead, baseline: str) -> str | None:
    """The interval behind a lead, as a sentence."""
    found = lead.best.estimate
    if found is None or not found.is_known or len(lead.names) > 1:
        return None
    return (
        f"{lead.names[0]}: {ratio(found.ratio)} of {baseline}'s {MEASURE[lead.role]}, 95 % interval "
        f"{span(found.low, found.high)}, {found.pairs} pairs of runs."
    )


def clause(lead: Lead, baseline: str) -> str:
    """One lead as a clause of the verdict."""
    measure = MEASURE[lead.role]
    if len(lead.names) == lead.field:
        return f"no difference in {measure} could be shown"
    if len(lead.names) > 1:
        first, *close = lead.names
        shown = join(close) if len(close) <= MOST_NAMED else f"{len(close)} others"
        return f"{first} leads in {measure}, with {shown} not told apart from it"
    name = lead.names[0]
    if name == baseline:
        return f"{name} is {LEAD[lead.role]}"
    return f"{name} is {LEAD[lead.role]}, {percent_change(lead.best.ratio)} than {baseline}"


def conclude(analysis: Analysis) -> Conclusion:
    """The sentence at the top of the page, and what must be known with it."""
    baseline = analysis.result.baseline
    found = leads(analysis)
    main = [lead for lead in found if lead.role in ("speed", "memory")] or found
    details = [clause(lead, baseline) + "." for lead in found if lead not in main]
    details += [text for lead in main if (text := evidence(lead, baseline)) is not None]
    details += [
        f"Not told apart from {lead.names[0]} in {MEASURE[lead.role]}: {join(lead.names[1:])}."
        for lead in main
        if MOST_NAMED + 1 < len(lead.names) < lead.field
    ]
    if analysis.unmeasured:
        left = f"{len(analysis.unmeasured)} of {len(analysis.candidates)} allocators"
        sentence = f"No verdict: {left} were not measured everywhere, for lack of time: {join(analysis.unmeasured)}."
    elif not main:
        sentence = "No verdict: fewer than two allocators finished, so there is nothing to compare."
    elif analysis.fewest_rounds < 2:
        sentence = "No verdict: one round was measured, and one round cannot tell a difference from noise."
        details = []
    elif analysis.fewest_rounds < (needed := LEAST_ROUNDS if analysis.rounds_fixed else least_rounds(analysis.alpha)):
        crowd, rounds = main[0].field, analysis.fewest_rounds
        sentence = f"No verdict: {rounds} rounds cannot tell {crowd} allocators apart; it takes {needed}."
        details = []
    elif len(main) == 2 and len(main[0].names) == 1 and main[0].names == main[1].names:
        name, fast, small = main[0].names[0], main[0].best, main[1].best
        sentence = (
            f"{name} is both fastest and smallest: there is no reason to switch."
            if name == baseline
            else f"{name} is both fastest and smallest: {percent_change(fast.ratio)} time and "
            f"{percent_change(small.ratio)} memory than {baseline}."
        )
    elif all(len(lead.names) == lead.field for lead in main):
        sentence = f"No difference in {join([MEASURE[lead.role] for lead in main])} could be shown."
    else:
        sentence = "; ".join(clause(lead, baseline) for lead in main) + "."
    return Conclusion(opening(sentence), [opening(d) for d in details] + qualifications(analysis))


def opening(sentence: str) -> str:
    """A sentence that begins with a word gets a capital; one that begins with an allocator's name keeps it."""
    return "N" + sentence[1:] if sentence.startswith("no ") else sentence


def qualifications(analysis: Analysis) -> list[str]:
    """Who could not win and why, and how large a difference has to be before it is claimed."""
    said = []
    names = [c.name for c in analysis.candidates]
    failed = [n for n in names if n in analysis.failed]
    if failed:
        said.append(f"Not ranked, because a run failed: {join(failed)}. The reasons stand below.")
    partial = sorted({n for s in analysis.overall.values() for n, o in s.items() if not o.complete} - set(failed))
    if partial:
        said.append(f"Not ranked, because experiments are missing: {join(partial)}.")
    if analysis.fewest_rounds < 2:
        return said
    baseline = analysis.result.baseline
    known = {r: f for r, f in analysis.floors.items() if not math.isinf(f)}
    if known:
        worst = "; ".join(f"{MEASURE[r]} {inference.margin(f) * 100:.1f} %" for r, f in known.items())
        said.append(f"{baseline} was also measured against itself. Differences below this are not claimed: {worst}.")
    else:
        unknown = "so the noise is unknown and no difference is claimed"
        said.append(f"{baseline} was not measured against itself, {unknown}.")
    return said
