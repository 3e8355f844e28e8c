"""Sentences of the documents whose figures follow from stored results.

This file holds each sentence with `{}` for its figures; the document holds it with the figures. `freestone docs` fills
them in. Line breaks do not matter. Between the document's lines of `results` it says which results they are of.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from freestone_lab.analysis import paired
from freestone_lab.attacks import enumerated
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load
from freestone_lab.docs import ages, tables, trace_results
from freestone_lab.docs.pages import with_section
from freestone_lab.report import quantity

OURS = "freestone"
README, ROADMAP, TRACE = Path("README.md"), Path("docs/ROADMAP.md"), Path("docs/TRACE.md")
FULL, TRACES = Path("docs/results/full.json.gz"), Path("docs/results/traces.json.gz")
CORPUS = Path("trace/corpus")
REPLAYED = ("whole", "rss")  # the figures of a replay that README gives
SLOT = r"([\d.,]*\d)"

_load = cache(load)


@dataclass(frozen=True)
class Sentence:
    """`values` gives the figures of `text` from the files `of`, in the order of its slots.

    `figures` are the stored figures that they are of. The text has each one's label or, without one, its experiment.
    """

    document: Path
    text: str
    of: Path
    values: Callable[[Path], list[str]]
    figures: tuple[str, ...] = ()


def filled(page: str, sentence: Sentence, values: list[str]) -> str:
    """The page with these figures in the sentence. UserError if the page lacks the sentence."""
    parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in sentence.text.split("{}")]
    if len(parts) != len(values) + 1:
        raise ValueError(f"{sentence.text!r}: {len(values)} figures for {len(parts) - 1} places")
    found = re.search(SLOT.join(parts), page)
    if found is None:
        raise UserError(f"{sentence.document}: expected the sentence '{sentence.text}' with a figure for each {{}}")
    for slot in range(len(values), 0, -1):
        page = page[: found.start(slot)] + values[slot - 1] + page[found.end(slot) :]
    return page


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content. Leaves out the sentences whose result is not stored."""
    made: dict[Path, str] = {}
    results: dict[Path, dict[Path, None]] = {}
    for sentence in SENTENCES:
        if (root / sentence.of).exists():
            page = made.get(sentence.document) or (root / sentence.document).read_text(encoding="utf-8")
            made[sentence.document] = filled(page, sentence, sentence.values(root))
            if sentence.of != CORPUS:
                results.setdefault(sentence.document, {})[sentence.of] = None
    for document, of in results.items():
        made[document] = with_section(made[document], document, "results", ages.note(root, *of))
    return made


def _over_programs(result: Result, figure: str) -> list[str]:
    """Our ratio, the ends of its interval, over how many programs, and how many allocators have less, of how many."""
    names = [p.name for p in result.peers if p.kind != "control" and p.name != result.baseline]
    found = {name: over for name in names if (over := trace_results.over_programs(result, name, figure))}
    if OURS not in found:
        raise UserError(f"{TRACES}: holds no {figure} of {OURS}")
    ours = found[OURS][0]
    less = sum(other.ratio < ours.ratio for other, _ in found.values())
    count = str(found[OURS][1])
    return [*map(quantity.ratio, (ours.ratio, ours.low, ours.high)), count, str(less), str(len(found) - 1)]


def _recorded_programs(root: Path) -> list[str]:
    result = _load(root / TRACES)
    rounds = min(len(paired.values(e, result.baseline, "rss")) for e in result.experiments)
    values = [str(len(result.experiments)), str(rounds)]
    return values + [value for figure in REPLAYED for value in _over_programs(result, figure)]


def _attacks(root: Path) -> list[str]:
    """How many kinds there are, how many of them each allocator stops whole, and the least that ours stops of one."""
    kinds = enumerated.kinds(_load(root / tables.ENUMERATED))

    def whole(name: str) -> str:
        return str(sum(shares.get(name, 0.0) == 1 for shares in kinds.values()))

    ours, *others = ("freestone-hardened", "hardened-malloc", "scudo", "glibc")
    least = min(shares[ours] for shares in kinds.values())
    return [str(len(kinds)), whole(ours), f"{int(100 * least + 1e-9)}", *(whole(name) for name in others)]


def _fast_attacks(root: Path) -> list[str]:
    kinds = enumerated.kinds(_load(root / tables.ENUMERATED)).values()
    return [f"{100 * sum(shares[name] for shares in kinds) / len(kinds):.0f}" for name in ("freestone", "glibc")]


def _full(experiment: str, figure: str, pairs: tuple[tuple[str, str], ...]) -> Callable[[Path], list[str]]:
    """The ratio of medians of each pair of allocators."""

    def values(root: Path) -> list[str]:
        found = next(e for e in _load(root / FULL).experiments if e.id == experiment)
        medians = {p: median(paired.values(found, p, figure).values()) for pair in pairs for p in pair}
        return [quantity.ratio(medians[over] / medians[under]) for over, under in pairs]

    return values


def _events(trace: bytes) -> int:
    """How many events the heads of its blocks name, by the layout in trace/include/freestone/trace.h."""
    count, at = 0, 64
    while trace[at : at + 4] == b"FSTB":
        events, stored = struct.unpack_from("<I4xI", trace, at + 16)
        count += events
        at += 64 + stored
    return count


def _corpus(root: Path) -> list[str]:
    files = [path.read_bytes() for path in sorted((root / CORPUS).glob("*.fst"))]
    bytes_each = [len(data) / _events(data) for data in files]
    return [str(len(files)), f"{min(bytes_each):.2f}", f"{max(bytes_each):.2f}"]


SENTENCES = (
    Sentence(
        README,
        "Replays of {} recorded programs (`./freestone bench traces`, {} rounds, geometric means) take {} of glibc's "
        "CPU time of the replay, less its own ({} to {}, over the {} programs that take 10 ms; {} of {} other "
        "allocators take less), and {} of its peak memory with start-up ({} to {}, over {} programs; {} of {} "
        "others take less).",
        TRACES,
        _recorded_programs,
        REPLAYED,
    ),
    Sentence(
        README,
        "Of {} kinds of misuse the hardened library stops {} in every attack, and the rest in at least {} % of the "
        "attacks (hardened_malloc stops {} kinds, scudo {}, glibc {}).",
        tables.ENUMERATED,
        _attacks,
    ),
    Sentence(ROADMAP, "as many attacks stopped as by glibc | {} %; glibc {} % |", tables.ENUMERATED, _fast_attacks),
    Sentence(
        ROADMAP,
        "in the weighted mix of sizes | {} in `micro/published` |",
        FULL,
        _full("micro/published", "weighted", (("freestone-hardened", "glibc"),)),
        ("weighted",),
    ),
    Sentence(
        ROADMAP,
        "(`larson/medium`) level with the fastest | {} of glibc; gperftools {} |",
        FULL,
        _full("larson/medium", "calls_per_second", (("glibc", "freestone"), ("glibc", "gperftools"))),
        ("calls_per_second",),
    ),
    Sentence(TRACE, "The corpus, {} real programs in `trace/corpus`, has {} to {} bytes an event", CORPUS, _corpus),
)
