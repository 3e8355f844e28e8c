"""The card: what to use, what it brings, what is not known, what went wrong, and how to adopt it."""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from freestone_lab.analysis.claims import change
from freestone_lab.analysis.decision import MEMORY_LIMIT, Decision, Evidence, decide, evidence_of
from freestone_lab.analysis.inference import SAME, Verdict, is_same
from freestone_lab.analysis.sequential import ERROR_RATE, LEAST_ROUNDS
from freestone_lab.core import units
from freestone_lab.core.result import Experiment, Peer, Result
from freestone_lab.measure.load import PER_REQUEST
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.measure.share import Share
from freestone_lab.peers import discover
from freestone_lab.report.overview import Analysis, analyse
from freestone_lab.report.quantity import Role, show

Line = tuple[str, str]
MOST_NAMED = 3
ONE_RUN = "one run only"
UNKNOWN, CHOICE = "unknown", "choice"  # the first word of a card that recommends nothing
UNFIT_LOAD = 0.8  # of the CPUs at work for others before the sitting
UNFIT_STEAL = 0.05
SURE = f"at most {ERROR_RATE * 100:g} % that any statement here is wrong"


@dataclass(frozen=True)
class Adoption:
    """How one allocator comes into a program, and how it goes again."""

    adopt: str
    undo: str


@dataclass(frozen=True)
class Card:
    """Lines: a word, and what follows it. The answer opens the card; over several programs it ends it, below theirs,
    with what it brings over all of them (`more`)."""

    answer: Line
    lines: tuple[Line, ...]
    ways: Mapping[str, Adoption] = field(default_factory=dict)
    programs: tuple[Line, ...] = ()
    more: str = ""

    @property
    def sentence(self) -> str:
        """The answer as a headline."""
        word, said = self.answer
        return said if word in (UNKNOWN, CHOICE) else f"{word} {said}"

    def text(self) -> str:
        last = [*self.lines, *self.programs, ("in all", self.sentence + self.more)]
        return "\n".join(f"{word:<9} {said}" for word, said in (last if self.programs else [self.answer, *self.lines]))


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
    round_s: float, elapsed_s: float, way: str = "preload", about: Sequence[tuple[str, str]] = (),
) -> Card:  # fmt: skip
    """The card of a measurement, however far it came."""
    use, base = decision.use, evidence.baseline
    ways = {} if decision.unknown else ways_of(next(p for p in peers if p.name == use), command)
    lines: list[Line] = []
    shown = use if use != base else _best_rival(evidence)
    if shown is not None:
        of = f"{shown}: " if shown != use or decision.unknown else ""
        lines += [(_label(evidence, f), of + _line(evidence, shown, f)) for f in evidence.times]
        lines.append(("memory", of + _line(evidence, shown, evidence.memory_figure)))
    lines += _counted(evidence)
    others = [_beside(evidence, name, use) for name in decision.open]
    if others:
        lines.append(("close", f"not told apart from {use}: {_some(others)}"))
    if best := _best_options(evidence, decision):
        lines.append(("options", best))
    if decision.wasteful:
        lines.append(("left out", f"{_some(decision.wasteful)}: more than {MEMORY_LIMIT:g} times the memory"))
    lines += [*_failures(evidence.experiment), *about]
    lines.append(("sure", _sure(evidence, decision, round_s, elapsed_s)))
    lines += _adopting(ways, way)
    if page is not None:
        lines.append(("page", near(page)))
    word, said = _answer(evidence, decision)
    brings = "" if decision.unknown or use == base else f": {_brings(evidence, use)}"
    return Card((word, said + brings), tuple(lines), ways)


def _adopting(ways: Mapping[str, Adoption], way: str = "preload") -> list[tuple[str, str]]:
    """In stages: one place first, what to watch there, and how to go back."""
    if not ways:
        return []
    how = ways[way].adopt.replace("\n", "; ")
    watch = "on one machine of several first; watch its CPU time, memory and errors for a day"
    return [("adopt", f"{how} ({watch}; undo: {ways[way].undo})")]


def _answer(evidence: Evidence, decision: Decision) -> tuple[str, str]:
    """The first line: what to use, or why that is not known."""
    use, base = decision.use, evidence.baseline
    if decision.unknown:
        return UNKNOWN, f"not known yet: {_why_unknown(evidence, decision)}"
    if decision.is_a_trade:
        return CHOICE, _trade(use, base, evidence.verdict(evidence.memory_figure, use) == "worse")
    if use != base:
        return "use", f"{use} instead of {base}"
    return "keep", f"{base}: nothing measured is better" + (" by more than 3 %" if len(evidence.names) > 1 else "")


def _trade(name: str, base: str, larger: bool) -> str:
    return f"your choice, {name} is {'faster and larger' if larger else 'smaller and slower'} than {base}"


def _brings(evidence: Evidence, name: str) -> str:
    """What stands in the headline: time and memory to the baseline, as far as they are known."""
    figures = evidence.times[0], evidence.memory_figure
    found = {f: evidence.estimate(f, name, evidence.baseline).ratio for f in figures}
    said = {f: evidence.verdict(f, name) for f in found}
    return ", ".join(_less_or_more(_label(evidence, f), said[f], ratio) for f, ratio in found.items())


def _less_or_more(what: str, said: Verdict, ratio: float) -> str:
    change = abs(ratio - 1) * 100
    if said == "inconclusive":
        return f"{what} not known"
    if change < 0.5:
        return f"equal {what}"
    how = f"{change:.0f}" if change >= 10 else f"{change:.1f}"
    return f"{how} % {'less' if ratio < 1 else 'more'} {what}"


def _why_unknown(evidence: Evidence, decision: Decision) -> str:
    left = evidence.experiment.not_run
    if decision.unknown == "not measured":
        return f"{', '.join(left)} {'was' if len(left) == 1 else 'were'} not measured ({next(iter(left.values()))})"
    if decision.unknown == "rounds":
        counted = f"{evidence.rounds} round{'s' if evidence.rounds != 1 else ''}"
        return f"{counted}; it takes {LEAST_ROUNDS} to say anything"
    if decision.use == evidence.baseline:
        every = len(decision.open) == len(evidence.names) - 1 > 2
        may = "any of the others" if every else " or ".join(decision.open)
        return f"nothing is shown to be better than {decision.use}, and {may} may be"
    return f"{decision.use} is not shown to be better than {evidence.baseline}"


def _counted(evidence: Evidence) -> list[tuple[str, str]]:
    """What the figures count, where they are not simply the program's."""
    specs = evidence.experiment.specs
    own = [f for f in (*evidence.times, evidence.memory_figure) if f in specs and specs[f] != PROCESS_SPECS.get(f)]
    return [("counts", "; ".join(specs[f].label for f in own))] if any(specs[f].label for f in own) else []


def _failures(experiment: Experiment) -> list[tuple[str, str]]:
    """What went wrong under an allocator, each in words."""
    found: dict[str, str] = {}
    for sample in experiment.samples:
        if sample.status != "ok":
            found.setdefault(sample.peer, f"{sample.status.replace('_', ' ')}: {sample.detail}")
    return [("failed", f"{peer}: {why}") for peer, why in found.items()]


def of_result(
    result: Result, analysis: Analysis | None = None, way: str = "preload", page: Path | None = None
) -> Card | None:  # fmt: skip
    """The card of a comparison, from what is stored; None where nothing was compared. `analysis` is the page's."""
    controls = [p.name for p in result.peers if p.kind == "control"]
    found = [evidence_of(e, result.baseline, controls) for e in result.experiments]
    found = [e for e in found if e.rounds > 0 and (len(e.names) > 1 or e.experiment.not_run)]
    if not found:
        return None
    words = _started(result.command)
    if len(result.experiments) > 1:
        return _of_jobs(found, analysis or analyse(result), words)
    evidence = found[0]
    spent = math.fsum(s.figures.get("wall", 0.0) for s in evidence.experiment.samples)
    about = [*_share(evidence.experiment), *versions(result), *machine_lines(result)]
    return make(
        evidence, decide(evidence), result.peers, words, page=page, round_s=spent / evidence.rounds, elapsed_s=spent,
        way=way, about=about,
    )  # fmt: skip


def _started(command: Sequence[str]) -> list[str]:
    """The command line that was measured, for the line that adopts an allocator."""
    if "--" in command:
        return list(command[command.index("--") + 1 :])
    return shlex.split(command[command.index("--server") + 1]) if "--server" in command else ["YOUR", "PROGRAM"]


def _share(experiment: Experiment) -> list[tuple[str, str]]:
    sampled = experiment.params.get("malloc")
    return [("malloc", Share(**sampled).words())] if isinstance(sampled, dict) else []


def nothing_to_win(experiment: Experiment, baseline: str) -> str:
    """The whole answer for a program in which malloc does not matter."""
    keep, sure = ("keep", f"{baseline}: {_share(experiment)[0][1]}"), ("sure", "not measured; --runs 10 does it anyway")
    return Card(keep, (sure,)).text()


def versions(result: Result) -> list[tuple[str, str]]:
    """What was measured in which version, and which newer allocators could be."""
    found = {p.path: f"{p.name} {p.version}" for p in reversed(result.peers) if p.version and p.kind != "control"}
    if not found:
        return []
    newer = discover.outdated([p.name for p in result.peers])
    more = f"; newer: freestone peers install {' '.join(newer)}" if newer else ""
    return [("versions", ", ".join(reversed(found.values())) + more)]


def machine_lines(result: Result) -> list[tuple[str, str]]:
    """The load during the sitting, and whether the machine was fit to measure."""
    samples = [s for e in result.experiments for s in e.samples if s.round > 0 and s.gauges]
    cpus = result.fingerprint.get("cpus")
    if not samples or not isinstance(cpus, int):
        return []
    before = float(result.fingerprint.get("load", 0.0))
    load = median(s.gauges.get("load", 0.0) for s in samples)
    stolen = median(s.gauges.get("steal", 0.0) for s in samples)
    said = f"load {before:.1f} before, {load:.1f} during, on {cpus} CPUs"
    if result.fingerprint.get("thp"):
        said += f", huge pages {result.fingerprint['thp']}"
    if before >= UNFIT_LOAD * cpus:
        return [("machine", f"{said}: unfit for wall time, for others are at work; CPU time says more")]
    if stolen > UNFIT_STEAL:
        return [("machine", f"{said}: unfit, for the host took {stolen:.0%} of the CPU time".replace("%", " %"))]
    return [("machine", said)]


def one_line(evidence: Evidence, decision: Decision) -> str:
    """The answer for one program in one sentence, memory beside time."""
    base = evidence.baseline
    head = Card(_answer(evidence, decision), ()).sentence
    shown = decision.use if decision.use != base else _best_rival(evidence)
    if shown is not None:
        time = evidence.times[0]
        head += f"; {shown}: {_label(evidence, time)} {_change(evidence, shown, time)}{_memory(evidence, shown)}"
    wide = [n for n in evidence.names[1:] if n not in decision.lost and not _is_close(evidence, n)]
    same = [n for n in evidence.names[1:] if is_same(evidence.time(n, base))]
    if same:
        head += f"; as fast as {base} within 3 %: {', '.join(same)}"
    if wide:
        every = len(wide) == len(evidence.names) - 1 > 2
        head += "; none is known within 3 %" if every else f"; not known within 3 %: {', '.join(wide)}"
    still = [] if decision.unknown else decision.open
    return head + (f"; not told apart from {decision.use}: {', '.join(still)}" if still else "")


def _memory(evidence: Evidence, name: str) -> str:
    """Memory beside time."""
    spec = evidence.experiment.specs.get(evidence.memory_figure)
    if spec is None:
        return ""
    values = _values(evidence, name, evidence.memory_figure) if spec.unit == "KiB" else ""
    return f", memory {_change(evidence, name, evidence.memory_figure)}{values}"


def _is_close(evidence: Evidence, name: str) -> bool:
    return evidence.time(name, evidence.baseline).half_width <= SAME


def _overall(analysis: Analysis, count: int) -> list[tuple[str, str]]:
    """Each allocator that ran in all programs: CPU time and memory over all of them, the fastest first."""
    base, speeds = analysis.result.baseline, analysis.ranked.get("speed", {})
    names = sorted((n for n in speeds if n != base), key=lambda n: speeds[n].ratio)
    said = [f"{name}: {_mean(analysis, name)}" for name in names[:MOST_NAMED]]
    return [("all", f"{count} programs, geometric mean: {'; '.join(said)}")] if said else []


def _mean(analysis: Analysis, name: str) -> str:
    """CPU time and memory over all programs."""
    parts = {"CPU": analysis.ranked.get("speed", {}), "memory": analysis.ranked.get("memory", {})}
    found = {what: scores[name].estimate for what, scores in parts.items() if name in scores}
    return ", ".join(f"{what} {change(e)}" for what, e in found.items() if e is not None)


def _best_in_most(decisions: Sequence[Decision], analysis: Analysis) -> tuple[str | None, tuple[int, int]]:
    """Who is not shown to be worse than the choice in most programs: in how many, and in how many the choice itself.

    It must be the choice somewhere. Among equals whoever is it more often, then the faster one.
    """
    known = [d for d in decisions if not d.unknown]
    chosen = Counter(d.use for d in known)
    among = Counter(name for d in known for name in d.best)
    speeds = analysis.ranked.get("speed", {})
    order = sorted(
        chosen, key=lambda n: (-among[n], -chosen[n], speeds[n].ratio if n in speeds else 1.0, n)
    )  # fmt: skip
    if not order or among[order[0]] <= len(decisions) / 2:
        return None, (0, 0)
    return order[0], (among[order[0]], chosen[order[0]])


def _of_jobs(found: Sequence[Evidence], analysis: Analysis, words: Sequence[str]) -> Card:
    """A line for each program, and one for all."""
    result = analysis.result
    decisions = [decide(evidence) for evidence in found]
    base, count = found[0].baseline, len(found)
    programs = tuple((e.experiment.id, one_line(e, d)) for e, d in zip(found, decisions, strict=True))
    use, times = _best_in_most(decisions, analysis)
    overall = _overall(analysis, count)
    if use is None:
        more = f"; {overall[0][1].split('; ')[0]}" if overall else ""
        answer: Line = (UNKNOWN, f"not known yet: no allocator is shown to be the best in most of {count} programs")
        ways: dict[str, Adoption] = {}
    else:
        which = "best, or not shown to be worse than the best," if times[1] < times[0] else "best"
        best = f"{which} in {times[0]} of {count} programs"
        more = f"; geometric mean: {_mean(analysis, use)}" if use != base else ""
        answer = ("keep", f"{use}: {best}") if use == base else _over_all(analysis, use, best)
        ways = ways_of(next(p for p in result.peers if p.name == use), words)
    lines: list[Line] = [*overall, *(line for e in found for line in _failures(e.experiment))]
    lines += [*versions(result), *machine_lines(result)]
    lines.append(("sure", f"{SURE}; {min(e.rounds for e in found)} rounds or more"))
    lines += _adopting(ways)
    return Card(answer, tuple(lines), ways, programs, more)


def _over_all(analysis: Analysis, use: str, best: str) -> Line:
    """The answer for an allocator that is best in most programs: weighed as in one program, by the means over all."""
    base = analysis.result.baseline
    parts: dict[str, Role] = {"CPU": "speed", "memory": "memory"}
    means = {what: analysis.ranked[role][use] for what, role in parts.items() if use in analysis.ranked.get(role, {})}
    said: dict[str, Verdict] = {what: mean.verdict or "inconclusive" for what, mean in means.items()}
    gain = max((1 - means[what].ratio for what in means if said[what] == "better"), default=0.0)
    loss = max((means[what].ratio - 1 for what in means if said[what] == "worse"), default=0.0)
    brings = ", ".join(_less_or_more(what, said[what], mean.ratio) for what, mean in means.items())
    if not gain:
        return UNKNOWN, f"not known yet: {use} is {best}, and not shown to be better over all ({brings})"
    if loss > gain:
        return CHOICE, f"{_trade(use, base, said.get('memory') == 'worse')}: {brings}; {best}"
    return "use", f"{use} instead of {base}: {brings}; {best}"


def near(page: Path) -> str:
    return page.name if page.parent == Path.cwd() else str(page)


def _best_rival(evidence: Evidence) -> str | None:
    others = evidence.names[1:]
    others = [n for n in others if evidence.time(n, evidence.baseline).pairs > 1] or others
    return min(others, key=lambda n: evidence.time(n, evidence.baseline).ratio) if evidence.rounds and others else None


def _label(evidence: Evidence, figure: str) -> str:
    words = {"cpu": "CPU", "whole": "CPU", PER_REQUEST: "CPU", "wall": "time", evidence.memory_figure: "memory"}
    return words.get(figure, figure.replace("_", " "))


def _change(evidence: Evidence, name: str, figure: str) -> str:
    found = evidence.estimate(figure, name, evidence.baseline)
    return change(found) if found.pairs > 1 else ONE_RUN


def _line(evidence: Evidence, name: str, figure: str) -> str:
    """The change from the baseline, and both values. One pair of runs shows no change."""
    if evidence.estimate(figure, name, evidence.baseline).pairs < 2:
        return ONE_RUN
    said = _change(evidence, name, figure)
    if not evidence.estimate(figure, name, evidence.baseline).is_known:
        said += " (not bounded yet)"
    return said + _values(evidence, name, figure)


def _values(evidence: Evidence, name: str, figure: str) -> str:
    spec = evidence.experiment.specs.get(figure)
    mine, theirs = (evidence.typical(n, figure) for n in (name, evidence.baseline))
    if spec is None or mine is None or theirs is None:
        return ""
    return f", {show(mine, spec.unit)} instead of {show(theirs, spec.unit)}"


def _beside(evidence: Evidence, name: str, use: str) -> str:
    """A rival that is still open: where it stands to the one that is recommended."""
    time, memory = evidence.time(name, use), evidence.memory(name, use)
    if time.pairs < 2:
        return f"{name} ({ONE_RUN})"
    return f"{name} (time {(time.ratio - 1) * 100:+.0f} %, memory {(memory.ratio - 1) * 100:+.0f} %)"


def _best_options(evidence: Evidence, decision: Decision) -> str:
    """Of an allocator measured with several options, the fastest and the leanest setting."""
    swept = [n for n in evidence.names if " " in n and "=" in n and n not in decision.wasteful]
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
    said = f"{SURE}; {rounds}"
    if decision.settled:
        return said
    if evidence.rounds < LEAST_ROUNDS:
        return f"{rounds}; about {units.words((LEAST_ROUNDS - evidence.rounds + 1) * round_s)} more would say something"
    if decision.more_rounds is None:
        return f"{said}; hours more would not settle the rest"
    return f"{said}; about {units.words(decision.more_rounds * round_s)} more would settle it"
