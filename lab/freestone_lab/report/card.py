"""The card: what to use, what it brings, who is worse, what is not known, what went wrong, and how to adopt it."""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from freestone_lab.analysis.claims import change, percent
from freestone_lab.analysis.decision import MEMORY_LIMIT, Decision, Evidence, decide, evidence_of
from freestone_lab.analysis.inference import SAME, Verdict, is_same
from freestone_lab.analysis.sequential import ERROR_RATE, LEAST_ROUNDS, Estimate
from freestone_lab.core import units
from freestone_lab.core.result import Experiment, Peer, Result
from freestone_lab.measure.load import PER_REQUEST
from freestone_lab.measure.samples import PROCESS_SPECS
from freestone_lab.measure.share import Share
from freestone_lab.peers import discover
from freestone_lab.report.overview import Analysis, analyse
from freestone_lab.report.quantity import Role, show
from freestone_lab.report.verdict import told_apart

Line = tuple[str, str]
Found = Mapping[str, tuple[Estimate | None, Verdict]]  # what was measured to its change and what is claimed
PARTS: dict[str, Role] = {"CPU": "speed", "memory": "memory"}  # over all programs
MOST_NAMED = 3
ONE_RUN = "one run only"
UNKNOWN = "not known yet"
IN_ALL = "in all"
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
    """A headline to act on; a row for each program, and of several a last one for all; then lines: a word, and what
    follows it."""

    sentence: str
    lines: tuple[Line, ...]
    ways: Mapping[str, Adoption] = field(default_factory=dict)
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


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
    lines = [*_facts(evidence, decision), *about, ("sure", _sure(evidence, decision, round_s, elapsed_s))]
    lines += _adopting(ways, way)
    if page is not None:
        lines.append(("page", near(page)))
    brings = "" if decision.unknown or use == base else f": {_brings(_found(evidence, use))}"
    row = _row(evidence, decision)
    return Card(_answer(evidence, decision) + brings, tuple(lines), ways, _headings([evidence]), (row,))


def _headings(found: Sequence[Evidence]) -> tuple[str, ...]:
    time = " or ".join(sorted({_label(e, e.times[0]) for e in found}))
    return "program", "answer", "best candidate", time, "memory", "how sure"


def _row(evidence: Evidence, decision: Decision) -> tuple[str, ...]:
    """What to do for one program, and what its best candidate costs."""
    shown, figures = _shown(evidence, decision), (evidence.times[0], evidence.memory_figure)
    still = f"{len(decision.open)} open" if decision.open else "settled" if decision.settled else "open"
    said = _short(decision.use, evidence.baseline, bool(decision.unknown), decision.is_a_trade)
    cells = [_change(evidence, shown, f) for f in figures] if shown else ["", ""]
    return evidence.experiment.id, said, shown or "", *cells, f"{_rounds(evidence)}, {still}"


def _short(use: str, base: str, unknown: bool, is_a_trade: bool) -> str:
    """The answer in two or three words."""
    if unknown or is_a_trade:
        return UNKNOWN if unknown else "your choice"
    return f"keep {base}" if use == base else f"use {use}"


def _shown(evidence: Evidence, decision: Decision) -> str | None:
    """Whose figures stand beside the answer."""
    return decision.use if decision.use != evidence.baseline else _best_rival(evidence)


def _facts(evidence: Evidence, decision: Decision) -> list[Line]:
    """What is known of a program beside the row of the table."""
    use, shown = decision.use, _shown(evidence, decision)
    lines: list[Line] = []
    if shown is not None and (values := _all_values(evidence, shown)):
        lines.append(("values", f"{shown}: {values}"))
    lines += _worse(evidence)
    lines += _counted(evidence)
    if others := [_beside(evidence, name, use) for name in decision.open]:
        lines.append(("close", f"not told apart from {use}: {_some(others)}"))
    if best := _best_options(evidence, decision):
        lines.append(("options", best))
    if decision.wasteful:
        lines.append(("left out", f"{_some(decision.wasteful)}: more than {MEMORY_LIMIT:g} times the memory"))
    return lines + _failures(evidence.experiment)


def _worse(evidence: Evidence) -> list[Line]:
    """Who is shown to be worse than the baseline, and in what."""
    found = {
        _label(evidence, f): {
            n: evidence.estimate(f, n, evidence.baseline).ratio
            for n in evidence.names[1:] if evidence.verdict(f, n) == "worse"
        }
        for f in (*evidence.times, evidence.memory_figure)
    }  # fmt: skip
    return _named_worse(found, evidence.baseline)


def _named_worse(found: Mapping[str, Mapping[str, float]], base: str) -> list[Line]:
    names = dict.fromkeys(name for ratios in found.values() for name in ratios)
    each = [
        f"{name} ({', '.join(f'{what} {percent(ratios[name])}' for what, ratios in found.items() if name in ratios)})"
        for name in names
    ]
    return [("worse", f"than {base}: {', '.join(each)}")] if each else []


def _adopting(ways: Mapping[str, Adoption], way: str = "preload") -> list[tuple[str, str]]:
    """In stages: one place first, what to watch there, and how to go back."""
    if not ways:
        return []
    how = ways[way].adopt.replace("\n", "; ")
    watch = "on one machine of several first; watch its CPU time, memory and errors for a day"
    return [("adopt", f"{how} ({watch}; undo: {ways[way].undo})")]


def _answer(evidence: Evidence, decision: Decision) -> str:
    """What to use, or why that is not known."""
    use, base = decision.use, evidence.baseline
    if decision.unknown:
        return f"{UNKNOWN}: {_why_unknown(evidence, decision)}"
    if decision.is_a_trade:
        return _trade(use, base, evidence.verdict(evidence.memory_figure, use) == "worse")
    if use != base:
        return f"use {use} instead of {base}"
    return f"keep {base}: nothing measured is better" + (" by more than 3 %" if len(evidence.names) > 1 else "")


def _trade(name: str, base: str, larger: bool) -> str:
    return f"your choice, {name} is {'faster and larger' if larger else 'smaller and slower'} than {base}"


def _found(evidence: Evidence, name: str) -> Found:
    """Time and memory to the baseline, as the headline says them."""
    figures = evidence.times[0], evidence.memory_figure
    return {
        _label(evidence, f): (evidence.estimate(f, name, evidence.baseline), evidence.verdict(f, name)) for f in figures
    }


def _brings(found: Found, base: str = "") -> str:
    """What is claimed in words, and with its interval what is not; where `base` is given, it is named."""
    claimed = {what: (e.ratio, said) for what, (e, said) in found.items() if e is not None and said != "inconclusive"}
    words = [_less_or_more(what, ratio) for what, (ratio, _) in claimed.items()]
    if words and base:
        words[0] += f" {'to' if words[0].startswith('equal') else 'than'} {base}"
    joint = " for " if {said for _, said in claimed.values()} == {"better", "worse"} else ", "
    rest = [f"{what} {change(e)}, not shown" if e else f"{what} not known" for what, (e, _) in found.items()
            if what not in claimed]  # fmt: skip
    return "; ".join([*([joint.join(words)] if words else []), *rest])


def _less_or_more(what: str, ratio: float) -> str:
    change = abs(ratio - 1) * 100
    if change < 0.5:
        return f"equal {what}"
    how = f"{change:.0f}" if change >= 10 else f"{change:.1f}"
    return f"{how} % {'less' if ratio < 1 else 'more'} {what}"


def _why_unknown(evidence: Evidence, decision: Decision) -> str:
    left = evidence.experiment.not_run
    if decision.unknown == "not measured":
        return f"{', '.join(left)} {'was' if len(left) == 1 else 'were'} not measured ({next(iter(left.values()))})"
    if decision.unknown == "rounds":
        return f"{_rounds(evidence)}; it takes {LEAST_ROUNDS} to say anything"
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


def nothing_to_win(experiment: Experiment, baseline: str) -> Card:
    """The whole answer for a program in which malloc does not matter."""
    return Card(f"keep {baseline}: {_share(experiment)[0][1]}", (("sure", "not measured; --runs 10 does it anyway"),))


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
    head, shown = _answer(evidence, decision), _shown(evidence, decision)
    if shown is not None:
        time = evidence.times[0]
        head += f"; {shown}: {_label(evidence, time)} {_change(evidence, shown, time)}{_memory(evidence, shown)}"
    head = "; ".join([head, *(said for _, said in _against(evidence, decision))])
    still = [] if decision.unknown else decision.open
    return head + (f"; not told apart from {decision.use}: {', '.join(still)}" if still else "")


def _against(evidence: Evidence, decision: Decision) -> list[Line]:
    """Who is as fast as the baseline, and of whom that is not known."""
    base = evidence.baseline
    wide = [n for n in evidence.names[1:] if n not in decision.lost and not _is_close(evidence, n)]
    same = [n for n in evidence.names[1:] if is_same(evidence.time(n, base))]
    lines = [("same", f"as fast as {base} within 3 %: {', '.join(same)}")] if same else []
    if wide:
        every = len(wide) == len(evidence.names) - 1 > 2
        lines.append(("open", "none is known within 3 %" if every else f"not known within 3 %: {', '.join(wide)}"))
    return lines


def _memory(evidence: Evidence, name: str) -> str:
    """Memory beside time."""
    spec = evidence.experiment.specs.get(evidence.memory_figure)
    if spec is None:
        return ""
    values = f", {_values(evidence, name, evidence.memory_figure)}" if spec.unit == "KiB" else ""
    return f", memory {_change(evidence, name, evidence.memory_figure)}{values}"


def _is_close(evidence: Evidence, name: str) -> bool:
    return evidence.time(name, evidence.baseline).half_width <= SAME


def _overall(analysis: Analysis, count: int) -> list[tuple[str, str]]:
    """Each allocator that ran in all programs: CPU time and memory over all of them, the fastest first."""
    base, speeds = analysis.result.baseline, analysis.ranked.get("speed", {})
    names = sorted((n for n in speeds if n != base), key=lambda n: speeds[n].ratio)
    means = {name: _means(analysis, name).items() for name in names[:MOST_NAMED]}
    said = [f"{n}: {', '.join(f'{what} {change(e)}' for what, (e, _) in them if e)}" for n, them in means.items()]
    return [("all", f"{count} programs, geometric mean: {'; '.join(said)}")] if said else []


def _best_in_most(decisions: Sequence[Decision], analysis: Analysis) -> tuple[str | None, tuple[int, int]]:
    """Who is not shown to be worse than the choice in most programs: in how many, and in how many the choice itself.

    It must be the choice somewhere. Among equals whoever is it more often, then the faster one.
    """
    known = [d for d in decisions if not d.unknown]
    chosen = Counter(d.use for d in known)
    among = Counter(name for d in known for name in d.best)
    speeds = analysis.ranked.get("speed", {})
    order = sorted(chosen, key=lambda n: (-among[n], -chosen[n], speeds[n].ratio if n in speeds else 1.0, n))
    if not order or among[order[0]] <= len(decisions) / 2:
        return None, (0, 0)
    return order[0], (among[order[0]], chosen[order[0]])


def _by_mean(analysis: Analysis, fastest: Sequence[str]) -> str | None:
    """The smallest of those that over all programs are not shown to be slower than the fastest."""
    slower = told_apart(analysis, "speed", fastest[0], list(fastest[1:])) if fastest else set()
    sizes = analysis.ranked.get("memory", {})
    return min((n for n in fastest if n not in slower), key=lambda n: sizes[n].ratio if n in sizes else 1, default=None)


def _merged(found: Sequence[tuple[str, Sequence[Line]]]) -> list[Line]:
    """The lines of all programs, one for each word; what holds for several programs is said once."""
    words: dict[str, dict[str, list[str]]] = {}
    for program, lines in found:
        for word, said in lines:
            words.setdefault(word, {}).setdefault(said, []).append(program)
    each = {word: [f"{', '.join(programs)}: {said}" for said, programs in of.items()] for word, of in words.items()}
    return [(word, " | ".join(texts)) for word, texts in each.items()]


def _of_jobs(found: Sequence[Evidence], analysis: Analysis, words: Sequence[str]) -> Card:
    """A row for each program, and one for all."""
    result = analysis.result
    decisions = [decide(evidence) for evidence in found]
    base, count = found[0].baseline, len(found)
    use, times = _best_in_most(decisions, analysis)
    which = "best" if times[1] == times[0] else "among the best"
    best = f"{which} in {times[0]} of {count} programs" if use else "none is best in most"
    speeds = {n: s for n, s in analysis.ranked.get("speed", {}).items() if n != base}
    shown = use if use not in (None, base) else _by_mean(analysis, sorted(speeds, key=lambda n: speeds[n].ratio))
    if use is None and any(verdict == "better" for _, verdict in _means(analysis, shown).values()):
        use, best = shown, "by the mean over all"
    sentence, short = _over_all(analysis, use, shown, best, count)
    ways = ways_of(next(p for p in result.peers if p.name == use), words) if use else {}
    means = _means(analysis, shown)
    cells = [change(mean) if (mean := means.get(what, (None,))[0]) else "" for what in PARTS]
    over = {
        what: {n: s.ratio for n, s in analysis.ranked.get(role, {}).items() if s.verdict == "worse"}
        for what, role in PARTS.items()
    }
    rows, each = [], [(IN_ALL, _named_worse(over, base))]
    for e, d in zip(found, decisions, strict=True):
        rows.append(_row(e, d))
        why = [("unknown", _why_unknown(e, d))] if d.unknown not in ("", "noise") else []
        each.append((e.experiment.id, [*_facts(e, d), *_against(e, d), *why]))
    rows.append((IN_ALL, short, shown or "", *cells, best))
    lines: list[Line] = [*_overall(analysis, count), *_merged(each)]
    lines += [*versions(result), *machine_lines(result)]
    lines.append(("sure", f"{SURE}; {min(e.rounds for e in found)} rounds or more"))
    lines += _adopting(ways)
    return Card(sentence, tuple(lines), ways, _headings(found), tuple(rows))


def _means(analysis: Analysis, name: str | None) -> Found:
    """CPU time and memory of an allocator over all programs."""
    means = {what: analysis.ranked.get(role, {}).get(name or "") for what, role in PARTS.items()}
    return {what: (mean.estimate, mean.verdict or "inconclusive") for what, mean in means.items() if mean}


def _over_all(analysis: Analysis, use: str | None, shown: str | None, best: str, count: int) -> tuple[str, str]:
    """The headline over all programs and the answer in short: weighed as in one program, by the means over all."""
    base, means = analysis.result.baseline, _means(analysis, shown)
    changes = {said: [abs(e.ratio - 1) for e, v in means.values() if e and v == said] for said in ("better", "worse")}
    gain, loss = (max(found, default=0.0) for found in changes.values())
    over = f"over {count} programs"
    if use == base:
        return f"keep {base}: {best}", _short(base, base, False, False)
    if use is None or not gain:
        figures = [f"{shown}: {_brings(means, base)} {over}"] if shown else []
        why = f"{use} is {best}, and not shown to be better over all"
        why = why if use else f"no allocator is shown to be the best in most of {count} programs"
        return "; ".join(figures if gain else [f"{UNKNOWN}: {why}", *figures]), UNKNOWN
    larger = means["memory"][1] == "worse" if "memory" in means else False
    opens = _trade(use, base, larger) if loss > gain else f"use {use} instead of {base}"
    return f"{opens}: {_brings(means)} {over}", _short(use, base, False, loss > gain)


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
    return change(found) + ("" if found.is_known else " (not bounded yet)") if found.pairs > 1 else ONE_RUN


def _all_values(evidence: Evidence, name: str) -> str:
    """What was measured, and the changes that the row has not. One pair of runs shows none."""
    parts = []
    for figure in (*evidence.times, evidence.memory_figure):
        in_row = figure in (evidence.times[0], evidence.memory_figure)
        pairs = evidence.estimate(figure, name, evidence.baseline).pairs
        said = [] if in_row else [_change(evidence, name, figure)]
        said += [_values(evidence, name, figure)] if pairs > 1 else []
        if any(said):
            parts.append(f"{_label(evidence, figure)} {', '.join(filter(None, said))}")
    return "; ".join(parts)


def _values(evidence: Evidence, name: str, figure: str) -> str:
    spec = evidence.experiment.specs.get(figure)
    mine, theirs = (evidence.typical(n, figure) for n in (name, evidence.baseline))
    if spec is None or mine is None or theirs is None:
        return ""
    return f"{show(mine, spec.unit)} instead of {show(theirs, spec.unit)}"


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


def _rounds(evidence: Evidence) -> str:
    return f"{evidence.rounds} round{'s' if evidence.rounds != 1 else ''}"


def _sure(evidence: Evidence, decision: Decision, round_s: float, elapsed_s: float) -> str:
    rounds = f"{_rounds(evidence)} in {units.words(elapsed_s)}"
    said = f"{SURE}; {rounds}"
    if decision.settled:
        return said
    if evidence.rounds < LEAST_ROUNDS:
        return f"{rounds}; about {units.words((LEAST_ROUNDS - evidence.rounds + 1) * round_s)} more would say something"
    if decision.more_rounds is None:
        return f"{said}; hours more would not settle the rest"
    return f"{said}; about {units.words(decision.more_rounds * round_s)} more would settle it"
