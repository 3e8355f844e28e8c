"""The card: what to use, what it brings, what is not known, and how to adopt it. At most ten lines."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.analysis.decision import MEMORY_LIMIT, Decision, Evidence, decide, evidence_of
from freestone_lab.analysis.sequential import ERROR_RATE, LEAST_ROUNDS, Estimate
from freestone_lab.core import units
from freestone_lab.core.result import Peer, Result
from freestone_lab.report.export import quantity

MOST_LINES = 10
MOST_NAMED = 3


@dataclass(frozen=True)
class Adoption:
    """How one allocator comes into a program, and how it goes again."""

    adopt: str
    undo: str


@dataclass(frozen=True)
class Card:
    """The lines in order: a word, and what follows it."""

    lines: tuple[tuple[str, str], ...]
    ways: Mapping[str, Adoption] = field(default_factory=dict)

    def text(self) -> str:
        return "\n".join(f"{word:<9} {said}" for word, said in self.lines)


def change(bounds: Estimate, *, rate: bool = False) -> str:
    """`-12.3 % (-14.0 … -10.5)`; of a rate the change of the rate itself."""
    shown = bounds.inverse if rate else bounds
    if not bounds.is_known:
        return f"{(shown.ratio - 1) * 100:+.1f} % (not bounded yet)"
    low, high = (shown.low - 1) * 100, (shown.high - 1) * 100
    return f"{(shown.ratio - 1) * 100:+.1f} % ({low:+.1f} … {high:+.1f})"


def ways_of(peer: Peer, command: Sequence[str]) -> dict[str, Adoption]:
    """The ways to adopt an allocator; none for the one that the program has anyway."""
    if peer.path is None:
        return {}
    settings = {**dict(peer.env), "LD_PRELOAD": peer.path}
    words = " ".join(f"{k}={shlex.quote(v)}" for k, v in settings.items())
    file = Path(peer.path)
    unit = "".join(f"\nEnvironment={k}={v}" for k, v in settings.items())
    image = {**settings, "LD_PRELOAD": f"/usr/local/lib/{file.name}"}
    docker = f"COPY {file.name} /usr/local/lib/\n" + "\n".join(f"ENV {k}={v}" for k, v in image.items())
    return {
        "preload": Adoption(f"{words} {shlex.join(command)}", "start it without " + " and ".join(settings)),
        "systemd": Adoption(f"systemctl edit UNIT, with the lines:\n[Service]{unit}", "systemctl revert UNIT"),
        "docker": Adoption(docker, "remove those lines and build again"),
        "link": Adoption(f"-Wl,--no-as-needed {peer.path} -Wl,-rpath,{file.parent}", "link without it"),
    }


def make(
    evidence: Evidence, decision: Decision, peers: Sequence[Peer], command: Sequence[str], *, page: Path | None,
    round_s: float, elapsed_s: float, not_run: Mapping[str, str], failed: Mapping[str, str] = {}, way: str = "preload",
) -> Card:  # fmt: skip
    """The card of a measurement, however far it came."""
    use, base = decision.use, evidence.baseline
    ways = ways_of(next(p for p in peers if p.name == use), command)
    lines = [
        ("use", f"{use} instead of {base}") if use != base else ("keep", f"{base}: {_why_keep(evidence, decision)}")
    ]
    shown = use if use != base else _best_rival(evidence)
    if shown is not None:
        of = f"{shown}: " if shown != use else ""
        lines.append((_time_word(evidence), of + _line(evidence, shown, evidence.subject.time)))
        lines.append(("memory", of + _line(evidence, shown, evidence.subject.memory)))
    others = [_beside(evidence, name, use) for name in decision.open]
    if others:
        lines.append(("close", f"not told apart from {use}: {_some(others)}"))
    if best := _best_options(evidence, decision):
        lines.append(("options", best))
    out = [f"{n} takes more than {MEMORY_LIMIT:g} times the memory" for n in decision.wasteful]
    out += [f"{n} {why}" for n, why in [*failed.items(), *((n, f"was not run: {w}") for n, w in not_run.items())]]
    if out:
        lines.append(("left out", _some(out)))
    lines.append(("sure", _sure(evidence, decision, round_s, elapsed_s)))
    if ways:
        lines += [("adopt", ways[way].adopt.replace("\n", "; ")), ("undo", ways[way].undo)]
    if page is not None:
        lines.append(("page", _near(page)))
    return Card(tuple(lines[: MOST_LINES - 1] + lines[-1:] if len(lines) > MOST_LINES else lines), ways)


def of_result(result: Result) -> Card | None:
    """The card of a comparison, from what is stored; None where nothing was compared."""
    controls = [p.name for p in result.peers if p.kind == "control"]
    found = [evidence_of(e, result.baseline, controls) for e in result.experiments]
    found = [e for e in found if e.rounds > 0 and len(e.names) > 1]
    if not found:
        return None
    words = result.command[result.command.index("--") + 1 :] if "--" in result.command else ["YOUR", "PROGRAM"]
    if len(result.experiments) > 1:
        return _of_jobs(found, result.peers, words)
    evidence = found[0]
    spent = math.fsum(s.figures.get("wall", 0.0) for s in evidence.experiment.samples)
    failed = {s.peer: s.detail for s in evidence.experiment.samples if s.status != "ok"}
    return make(
        evidence, decide(evidence), result.peers, words, page=None, round_s=spent / evidence.rounds, elapsed_s=spent,
        not_run={}, failed=failed,
    )  # fmt: skip


def _of_jobs(found: Sequence[Evidence], peers: Sequence[Peer], words: Sequence[str]) -> Card:
    """A line for each job, under the allocator that is best in most of them."""
    decisions = [decide(evidence) for evidence in found]
    use, times = Counter(d.use for d in decisions).most_common(1)[0]
    base, jobs = found[0].baseline, f"best in {times} of {len(found)} jobs"
    lines = [("use", f"{use} instead of {base}: {jobs}") if use != base else ("keep", f"{base}: {jobs}")]
    for evidence, decision in zip(found, decisions, strict=True):
        shown = decision.use if decision.use != base else _best_rival(evidence)
        assert shown is not None
        time, memory = evidence.time(shown, base), evidence.memory(shown, base)
        said = f"{_time_word(evidence)} {change(time, rate=evidence.subject.rate)}, memory {change(memory)}"
        verb = "use" if decision.use != base else f"keep {base};"
        still = f"; not told apart: {_some(decision.open)}" if decision.open else ""
        lines.append((evidence.experiment.id, f"{verb} {shown}: {said}{still}"))
    rounds = min(e.rounds for e in found)
    lines.append(
        (
            "sure",
            f"at most {ERROR_RATE:.0%} that a statement about a job is wrong".replace("%", " %")
            + f"; {rounds} rounds or more",
        )
    )
    ways = ways_of(next(p for p in peers if p.name == use), words)
    if ways:
        lines += [("adopt", ways["preload"].adopt), ("undo", ways["preload"].undo)]
    return Card(tuple(lines), ways)


def _near(page: Path) -> str:
    return page.name if page.parent == Path.cwd() else str(page)


def _why_keep(evidence: Evidence, decision: Decision) -> str:
    if evidence.rounds < 1:
        return "no round was finished, so nothing is known of the others"
    return "nothing measured is shown to be better" if decision.open else "nothing measured is better"


def _best_rival(evidence: Evidence) -> str | None:
    others = [n for n in evidence.names if n != evidence.baseline and evidence.values[n]]
    return min(others, key=lambda n: evidence.time(n, evidence.baseline).ratio) if evidence.rounds and others else None


def _time_word(evidence: Evidence) -> str:
    return "requests" if evidence.subject.rate else "time"


def _line(evidence: Evidence, name: str, figure: str) -> str:
    """The change from the baseline, and both values."""
    rate = evidence.subject.rate and figure == evidence.subject.time
    ask = evidence.memory if figure == evidence.subject.memory else evidence.time
    said = change(ask(name, evidence.baseline), rate=rate)
    spec = evidence.experiment.specs.get(figure)
    mine, theirs = evidence.typical(name, figure), evidence.typical(evidence.baseline, figure)
    if spec is None or mine is None or theirs is None:
        return said
    return f"{said}, {quantity(mine, spec)} instead of {quantity(theirs, spec)}"


def _beside(evidence: Evidence, name: str, use: str) -> str:
    """A rival that is still open: where it stands to the one that is recommended."""
    time, memory = evidence.time(name, use), evidence.memory(name, use)
    return f"{name} (time {(time.ratio - 1) * 100:+.0f} %, memory {(memory.ratio - 1) * 100:+.0f} %)"


def _best_options(evidence: Evidence, decision: Decision) -> str:
    """Of an allocator measured with several options, the fastest and the leanest setting."""
    swept = [n for n in evidence.names if " " in n and "=" in n and n not in decision.wasteful and evidence.values[n]]
    if not swept or not evidence.rounds:
        return ""
    base = evidence.baseline
    fast = min(swept, key=lambda n: evidence.time(n, base).ratio)
    lean = min(swept, key=lambda n: evidence.memory(n, base).ratio)
    return f"fastest {fast}" + (f"; leanest {lean}" if lean != fast else ", and leanest")


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - MOST_NAMED
    return "; ".join(texts[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _sure(evidence: Evidence, decision: Decision, round_s: float, elapsed_s: float) -> str:
    rounds = f"{evidence.rounds} round{'s' if evidence.rounds != 1 else ''} in {units.words(elapsed_s)}"
    said = f"at most {ERROR_RATE:.0%} that any statement here is wrong; {rounds}".replace("%", " %", 1)
    if decision.settled:
        return said
    if evidence.rounds < LEAST_ROUNDS:
        return f"{rounds}; about {units.words((LEAST_ROUNDS - evidence.rounds + 1) * round_s)} more would say something"
    if decision.more_rounds is None:
        return f"{said}; hours more would not settle the rest"
    return f"{said}; about {units.words(decision.more_rounds * round_s)} more would settle it"
