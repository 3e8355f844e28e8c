"""The tables of docs/ATTACKS.md about the attack suite, made from docs/results/attacks and put between marked lines.

`all.json.gz` holds every allocator of a machine at a few seeds. `seeds.json.gz` holds the hardened ones, the fast build
and the controls at many. Nothing can measure why the hardened build misses a case, so REASONS says it for each. A
missed case without a reason stops the documents.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from freestone_lab.attacks import tables
from freestone_lab.attacks.campaign import APART
from freestone_lab.attacks.judgement import DEFENDED, VERDICTS
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load
from freestone_lab.docs.pages import with_section

DOCUMENT = Path("docs/ATTACKS.md")
ALL = Path("docs/results/attacks/all.json.gz")
SEEDS = Path("docs/results/attacks/seeds.json.gz")
HARDENED, FAST, GLIBC = "freestone-hardened", "freestone", "glibc"

_LEFT = "the places of the quarantine are left at random: the address had been given out again"
_LEFT_MEDIUM = f"{_LEFT}; above 256 bytes a thread has 4 places"
REASONS: tuple[tuple[str, str], ...] = (
    (
        "double_free_after_slab_reused/*",
        "the memory was released and cut anew: the address is, or lies in, another live block",
    ),
    ("double_free_stale_*/medium", _LEFT_MEDIUM),
    ("write_reused_*/medium", _LEFT_MEDIUM),
    ("read_reused_*/medium", _LEFT_MEDIUM),
    ("virtual_call_*/medium", _LEFT_MEDIUM),
    ("double_free_stale_*", _LEFT),
    ("double_free_delayed_*", _LEFT),
    ("write_reused_*", _LEFT),
    ("read_reused_*", _LEFT),
    ("virtual_call_*", _LEFT),
    ("realloc_freed_churned/*", _LEFT),
    ("predict_place_in_slab/*", "few places in 16 KiB: four processes agree by chance"),
    ("predict_*", "chance: more than 8 of 16 guesses at random places came true"),
    ("*flow_stray_mebibyte/*", "one byte, a mebibyte away: it leaps over the guards into another live block"),
    ("realloc_shrunk_write_tail/large", "below 32 KiB a shrunk block moves; the word lies in another live block"),
)


def documents(root: Path) -> dict[Path, str]:
    """Path below the repository to content; empty while the results are not stored."""
    if not (root / ALL).is_file() or not (root / SEEDS).is_file():
        return {}
    everything, seeds = load(root / ALL), load(root / SEEDS)
    page = (root / DOCUMENT).read_text(encoding="utf-8")
    makers: dict[str, Callable[[], str]] = {
        "seeds": lambda: shares(seeds, SEEDS) + "\n\n" + families(seeds),
        "all": lambda: shares(everything, ALL),
        "fast": lambda: fast_against_glibc(seeds),
        "misses": lambda: misses(seeds),
        "apart": lambda: apart(seeds),
    }
    for name, make in makers.items():
        page = with_section(page, DOCUMENT, f"attacks-{name}", make())
    return {DOCUMENT: page}


def _rows(headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: bool = True) -> str:
    return "\n".join(tables.markdown_rows(headings, rows, numeric))


def shares(result: Result, file: Path) -> str:
    """The share of each verdict per allocator, without verdicts that nobody got."""
    grid = tables.summary(result)
    used = [i for i in range(len(grid.headings)) if i < 2 or any(row[i] for row in grid.rows)]
    rows = [[row[i].removesuffix(" %") if i > 1 else row[i] for i in used] for row in grid.rows]
    text = _rows([grid.headings[i] for i in used], rows)
    notes = "".join(f"\n- {note}" for note in grid.notes)
    said = f"{tables.seeds(result)} seeds, {len(result.peers)} allocators, `{file}`; shares in percent:"
    return f"{said}\n\n{text}" + (f"\n{notes}" if notes else "")


def families(result: Result) -> str:
    grid = tables.by_family(result)
    return "By family, in percent:\n\n" + _rows(grid.headings, grid.rows)


def _by_pair(result: Result, peer: str) -> dict[tuple[str, str], Counter[str]]:
    """(family, case/size) to the verdicts; those counted apart under that name."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for experiment in tables.experiments(result):
        sample = tables.sample_of(experiment, peer)
        for key, count in (sample.counts if sample is not None else {}).items():
            pair, separator, verdict = key.rpartition("=")
            if separator and verdict in VERDICTS and verdict != "not_applicable":
                found.setdefault((tables.family(experiment), pair), Counter())[verdict] += count
    return found


def fast_against_glibc(result: Result) -> str:
    """Per family and size the percentage that the fast build and glibc defend."""
    sums: dict[str, dict[str, dict[str, list[int]]]] = {}
    for peer in (FAST, GLIBC):
        for (family, pair), verdicts in _by_pair(result, peer).items():
            if family != APART:
                cell = sums.setdefault(family, {}).setdefault(pair.rpartition("/")[2], {}).setdefault(peer, [0, 0])
                cell[0] += sum(verdicts[v] for v in DEFENDED)
                cell[1] += sum(verdicts.values())
    sizes = ("small", "medium", "large", "any")

    def shown(cell: dict[str, list[int]] | None) -> str:
        if cell is None:
            return ""
        parts = [cell.get(peer, [0, 0]) for peer in (FAST, GLIBC)]
        return " / ".join(f"{100 * good / judged:.0f}" if judged else "-" for good, judged in parts)

    rows = [[family, *(shown(by_size.get(size)) for size in sizes)] for family, by_size in sums.items()]
    return f"The fast build / glibc, percent defended, `{SEEDS}`:\n\n" + _rows(["family", *sizes], rows)


def _got_through(verdicts: Counter[str]) -> int:
    return sum(count for verdict, count in verdicts.items() if verdict not in DEFENDED)


def reason_of(pair: str) -> str:
    """Why the hardened build can miss this case and size. Raises UserError for one that nobody has explained."""
    for pattern, reason in REASONS:
        if fnmatch.fnmatchcase(pair, pattern):
            return reason
    raise UserError(f"{pair}: got through the hardened build; expected its reason in attack_tables.REASONS")


def misses(result: Result) -> str:
    """Every case and size that got through the hardened build, how often, and why; one reason a row."""
    by_reason: dict[str, list[str]] = {}
    total = judged = 0
    for (family, pair), verdicts in _by_pair(result, HARDENED).items():
        if family == APART:
            continue
        judged += sum(verdicts.values())
        count = _got_through(verdicts)
        if count:
            total += count
            case, _, size = pair.rpartition("/")
            by_reason.setdefault(reason_of(pair), []).append(f"`{case}`, {size}: {count}")
    said = f"{total} of {judged} runs ({tables.seeds(result)} of each case and size, `{SEEDS}`):"
    return f"{said}\n\n" + _rows(["case, size: runs", "why"], [["; ".join(p), r] for r, p in by_reason.items()], False)


def apart(result: Result) -> str:
    """The cases that nobody can expect an allocator to see, by reason, and what the hardened build does about them."""
    reasons: dict[str, str] = {}
    for experiment in tables.experiments(result):
        if tables.family(experiment) == APART:
            reasons |= dict(caveat.split(": ", 1) for caveat in experiment.caveats)
    cells: dict[str, dict[str, list[int]]] = {}
    for (family, pair), verdicts in _by_pair(result, HARDENED).items():
        if family == APART:
            case = pair.rpartition("/")[0]
            cell = cells.setdefault(reasons[case], {}).setdefault(case, [0, 0])
            cell[0] += sum(verdicts[v] for v in DEFENDED)
            cell[1] += sum(verdicts.values())
    rows = [
        [", ".join(f"`{case}` {100 * good / judged:.0f}" for case, (good, judged) in found.items()), reason]
        for reason, found in cells.items()
    ]
    return f"Percent defended all the same, `{SEEDS}`:\n\n" + _rows(["case", "why"], rows, False)
