"""Two result files side by side: what changed from A to B, and gates for CI.

Two files come from two sittings, perhaps on two machines. So a peer is compared through its ratio to the baseline that
ran in the same rounds; only the baseline itself, or `absolute`, compares plain values.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from freestone_lab.analysis import inference
from freestone_lab.analysis.claims import headline
from freestone_lab.analysis.inference import Verdict
from freestone_lab.analysis.paired import estimate, values
from freestone_lab.analysis.sequential import ERROR_RATE, LEAST_ROUNDS, Estimate
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, FigureSpec, Result, control_name
from freestone_lab.measure import provenance

ALIASES = {"time": "wall", "memory": "rss", "faults": "minor_faults"}
NAMES = {figure: name for name, figure in ALIASES.items()}


@dataclass(frozen=True)
class Gate:
    """Fails if a figure gets worse by more than `limit` (a fraction) and by more than the noise floor."""

    figure: str
    limit: float
    text: str


@dataclass(frozen=True)
class Change:
    """One figure of one peer in one experiment, B against A; `ratio` is None when it cannot be estimated.

    `floor` is the larger of the two sittings' noise floors: what the baseline showed against itself.
    """

    experiment: str
    peer: str
    figure: str
    spec: FigureSpec
    ratio: Estimate | None
    floor: float
    verdict: Verdict = "inconclusive"


@dataclass(frozen=True)
class Comparison:
    changes: list[Change]
    broken: list[str]  # peers that ran well in A and fail in B, each with its reason
    only_a: list[str]
    only_b: list[str]
    figures: set[str]  # that both have
    apart: list[str] = field(default_factory=list)  # where A and B measured different programs or inputs
    to: str = ""  # the baseline to which ratios were compared; "": plain values


def parse_gate(text: str) -> Gate:
    """`time>3%`: fails when time gets worse by more than 3 %."""
    match = re.fullmatch(r"\s*([A-Za-z_][\w.]*)\s*>\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if not match:
        raise UserError(f"--fail-if '{text}': expected FIGURE>N%, such as time>3% or memory>5%")
    return Gate(ALIASES.get(match[1], match[1]), float(match[2]) / 100, text)


def _series(experiment: Experiment, peer: str, baseline: str, figure: str, absolute: bool) -> list[float]:
    own = values(experiment, peer, figure)
    if absolute or peer == baseline:
        return list(own.values())
    base = values(experiment, baseline, figure)
    return [own[r] / base[r] for r in own if base.get(r)]


def _failure(experiment: Experiment, peer: str) -> str | None:
    return next((f"{s.status}: {s.detail}" for s in experiment.samples if s.peer == peer and s.status != "ok"), None)


def compare(
    a: Result, b: Result, *, absolute: bool = False, peers: Sequence[str] = (), figures: Sequence[str] = ()
) -> Comparison:
    """What changed from `a` to `b` in every experiment and peer that both have. UserError when they share none."""
    ours = {e.id: e for e in a.experiments}
    theirs = {e.id: e for e in b.experiments}
    shared = [i for i in ours if i in theirs]
    if not shared:
        raise UserError(f"the two results share no experiment: {', '.join(ours)} against {', '.join(theirs)}")
    both = [p.name for p in a.peers if p.name in {q.name for q in b.peers} and p.kind != "control"]
    for name in peers:
        if name not in both:
            raise UserError(f"--peer '{name}': expected an allocator of both results: {', '.join(both)}")
    to = "" if absolute or a.baseline != b.baseline else a.baseline
    changes: list[Change] = []
    broken: list[str] = []
    for identity in shared:
        before, after = ours[identity], theirs[identity]
        for peer in [n for n in both if not peers or n in peers]:
            failure = _failure(after, peer)
            if failure and not _failure(before, peer):
                broken.append(f"{identity}: {peer} {failure}")
                continue
            wanted = dict.fromkeys([*headline(before), *(f for f in figures if f in before.specs and f in after.specs)])
            alpha = ERROR_RATE / (len(both) * len(wanted))
            changes += [_change(before, after, peer, f, a.baseline, not to, alpha) for f in wanted]
    apart = [s for i in shared for s in provenance.differences(i, ours[i].made_of, theirs[i].made_of)]
    only_a, only_b = [i for i in ours if i not in theirs], [i for i in theirs if i not in ours]
    known = {figure for i in shared for figure in ours[i].specs if figure in theirs[i].specs}
    return Comparison(changes, broken, only_a, only_b, known, apart, to)


def _change(
    before: Experiment, after: Experiment, peer: str, figure: str, baseline: str, absolute: bool, alpha: float
) -> Change:
    ratio = inference.unpaired_ratio(
        _series(after, peer, baseline, figure, absolute), _series(before, peer, baseline, figure, absolute), alpha
    )
    controls = [estimate(e, control_name(baseline), baseline, figure, alpha) for e in (before, after)]
    floor = max((inference.noise_floor(c) for c in controls if c is not None), default=0.0)
    spec = before.specs[figure]
    return Change(before.id, peer, figure, spec, ratio, floor, inference.verdict(ratio, floor, spec.better))


@dataclass(frozen=True)
class Objections:
    """What the gates say, one line each: what got worse, and what they cannot judge."""

    worse: list[str]
    unjudged: list[str]


def failures(comparison: Comparison, gates: Sequence[Gate]) -> Objections:
    """What the gates object to. A figure that nobody measured is a UserError, not a pass."""
    worse = [f"{line} (it ran well in the first result)" for line in comparison.broken] if gates else []
    unjudged: list[str] = []
    for gate in gates:
        concerned = [c for c in comparison.changes if c.figure == gate.figure]
        if not concerned and not comparison.broken:
            known = sorted(NAMES.get(figure, figure) for figure in comparison.figures)
            near = difflib.get_close_matches(gate.text.partition(">")[0].strip(), known, 1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise UserError(f"--fail-if '{gate.text}': {meant}expected a figure of both results: {', '.join(known)}")
        for change in concerned:
            place = f"{gate.text}: {change.experiment}, {change.peer}"
            if why := _cannot_judge(gate, change):
                unjudged.append(f"{place}: {why}")
            elif _is_worse(gate, change):
                worse.append(f"{place}: {interval_words(change.ratio)}")
    return Objections(worse, unjudged)


def _cannot_judge(gate: Gate, change: Change) -> str:
    """Why a change cannot be held against the gate's limit; "" if it can."""
    found = change.ratio
    if found is None or found.pairs < LEAST_ROUNDS:
        return f"{found.pairs if found else 0} values in one of the results; a gate needs {LEAST_ROUNDS} or more"
    reach = max(math.log(found.high / found.ratio), math.log(found.ratio / found.low)) if found.is_known else math.inf
    if reach > math.log1p(gate.limit) and not _is_worse(gate, change):
        return (
            f"the noise hides a change of {gate.text.partition('>')[2].strip()}: {interval_words(found)}; more rounds"
        )
    return ""


def _is_worse(gate: Gate, change: Change) -> bool:
    found = change.ratio
    if found is None or math.isinf(change.floor):
        return False
    bad = found.inverse if change.spec.better == "higher" else found
    return bad.above and math.log(bad.ratio) > math.log1p(max(gate.limit, change.floor))


def interval_words(found: Estimate | None) -> str:
    """`+4.2 % (95 % interval +1.0 to +7.5 %)`."""
    if found is None:
        return "no ratio"
    change = f"{(found.ratio - 1) * 100:+.1f} %"
    if not found.is_known:
        return f"{change} (no interval yet)"
    return f"{change} (95 % interval {(found.low - 1) * 100:+.1f} to {(found.high - 1) * 100:+.1f} %)"
