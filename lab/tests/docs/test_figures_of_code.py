"""What documents and comments say of the code in figures is what the code says.

A figure with a name of the code in brackets behind it, `8 MiB (kCacheBytesTotal)`, or a name with a figure in brackets
behind it, is the value of that constant or the default of that option. So a figure is tested by naming its constant.
The outputs that a page shows have the words of real outputs.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.docs import tuning

ROOT = paths.root()
SOURCES = ROOT / "allocator/src"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMENTED = sorted(
    path for folder in (SOURCES, ROOT / "trace") for path in folder.rglob("*") if path.suffix in (".h", ".cc", ".c")
)

WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "ten": 10, "sixteen": 16}
FRACTIONS = {"half": 2, "quarter": 4, "fifth": 5, "eighth": 8, "sixteenth": 16, "thirty-second": 32}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "s": 1000, "seconds": 1000}
FIGURE = rf"(\d[\d,]*|{'|'.join([*WORDS, *FRACTIONS])})(?:\s+({'|'.join(UNITS)}))?"
NAME = r"`?(k[A-Z]\w+|[a-z]+(?:_[a-z]+)+)`?"
BEHIND = re.compile(rf"\b{FIGURE}(?:\s+[a-z]+){{0,3}}\s+\({NAME}\)")
BEFORE = re.compile(rf"{NAME}\s+\({FIGURE}\)")
CONSTANT = re.compile(r"(?:\bconstexpr\s+[\w:]+\s+|^\s*)(k[A-Z]\w+)\s*=\s*([^;,]+)[;,]", re.MULTILINE)


@cache
def constants() -> dict[str, set[int]]:
    """The values of each constant of the allocator that is a number; several where files have one of the same name."""
    texts = {
        (name, re.sub(r"\b(?:usize|u64|u32|unsigned)\{(\w+)\}", r"\1", text.replace("'", "")))
        for path in COMMENTED
        for name, text in CONSTANT.findall(path.read_text(encoding="utf-8"))
    }
    found: dict[str, set[int]] = {}
    for _ in range(5):  # a constant may be made of others
        known = {name: next(iter(values)) for name, values in found.items()}
        for name, text in texts:
            if re.fullmatch(r"[\w\s+*/()<>-]+", text) is None:
                continue
            plain = re.sub(r"\b(\d+)[uU]?[lL]*\b", r"\1", text).replace("/", "//")
            try:
                value = eval(plain, {"__builtins__": {}}, known)
                found.setdefault(name, set()).add(value)
            except (NameError, SyntaxError, TypeError):
                continue  # of a kind that no document names, or not known yet
    return found


@cache
def figures_of_code() -> dict[str, set[int]]:
    options = tuning.read_options(ROOT)
    return {**constants(), **{option.name: {int(option.default)} for option in options if option.default.isdigit()}}


def claims(text: str) -> Iterator[tuple[str, int]]:
    """Each name that stands beside a figure, and the figure. Recipes say what is not so yet."""
    said = re.sub(r"^## Recipes\n.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    flat = re.sub(r"\s*\n\s*(?://\s*|\*\s*)?", " ", said)
    found = [(name, *figure) for *figure, name in BEHIND.findall(flat)]
    for name, figure, unit in found + BEFORE.findall(flat):
        value = (WORDS | FRACTIONS).get(figure) or int(figure.replace(",", ""))
        yield name, value * UNITS.get(unit, 1)


def problems(text: str) -> list[str]:
    known = figures_of_code()
    wrong = [(name, value) for name, value in claims(text) if value not in known.get(name, {value})]
    return [f"{name} is {known[name]}, not {value}" for name, value in wrong]


@pytest.mark.parametrize("path", [*PAGES, *COMMENTED], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_figure_beside_a_name_is_its_value(path: Path) -> None:
    assert problems(path.read_text(encoding="utf-8")) == []


def test_there_are_figures_to_check() -> None:
    found = {name for path in PAGES for name, _ in claims(path.read_text(encoding="utf-8"))}
    assert len(found & figures_of_code().keys()) >= 30


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("at most 16 MiB (`kCacheBytesTotal`)", []),
        ("at most 8 MiB (`kCacheBytesTotal`)", ["kCacheBytesTotal"]),
        ("the first 5,120 looks (`kLooks`)", []),
        ("the first 5,120\n// looks\n// (kLooks)", []),
        ("an eighth (`kDirtyLiveDivisor`) of it", []),
        ("a quarter (`kDirtyLiveDivisor`) of it", ["kDirtyLiveDivisor"]),
        ("waits for 1 s (`kRefusedMs`) or two seconds (`kRefusedMs`)", ["kRefusedMs"]),
        ("`exit_check_bytes` (32 MiB)", []),
        ("`exit_check_bytes` (16 MiB)", ["exit_check_bytes"]),
        ("in 4 places (`kWaitingRuns`) of 4 groups (`kSets`)", []),
    ],
)
def test_a_wrong_figure_is_noticed(said: str, wrong: list[str]) -> None:
    assert [line.split()[0] for line in problems(said)] == wrong


def test_the_mitigations_have_the_bits_of_the_table() -> None:
    policy = (SOURCES / "policy/policy.h").read_text(encoding="utf-8")
    page = (ROOT / "docs/HARDENING.md").read_text(encoding="utf-8")
    bits = [(bit, name) for name, bit in re.findall(r"\.(\w+) = \(kMitigationBits & (\d+)U\)", policy)]
    assert re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE) == bits != []
    assert f"all of them ({sum(int(bit) for bit, _ in bits)})" in page


def test_the_head_of_the_fast_paths_has_the_counts_of_the_golden_table() -> None:
    rows = [line.split() for line in (ROOT / "allocator/tests/golden/gcc.txt").read_text().splitlines()[1:]]
    counts = {row[0]: row[1:4] for row in rows}
    head = (SOURCES / "front/heap.h").read_text(encoding="utf-8")
    line = re.compile(r"^//   (malloc|free)\(.\) +(\d+) instructions[a-z ]*, (\d+) loads, (\d+) stores?", re.MULTILINE)
    said = line.findall(head)
    assert [(name, list(figures)) for name, *figures in said] == [(n, counts[f"{n}_64"]) for n in ("malloc", "free")]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def words_of(line: str) -> str:
    """A line of an output without its figures."""
    return " ".join(re.sub(r"0x[0-9a-f]+|[\d.]+", "#", line).split())


def test_the_statistics_that_the_page_shows_have_the_words_of_real_ones(tmp_path: Path) -> None:
    library = paths.build_dir() / "libfreestone.so"
    if not library.exists():
        pytest.skip("libfreestone.so is not built")
    work = "x = [bytearray(n) for n in range(5000)]"

    def real(conf: str) -> str:
        env = {**os.environ, "LD_PRELOAD": str(library), "FREESTONE_CONF": conf, "PYTHONMALLOC": "malloc"}
        command = ["python3", "-c", work]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True).stderr

    text, json_text, xml = blocks("OBSERVABILITY.md")[:3]
    printed = {words_of(line) for line in real("stats_print:true").splitlines()}
    assert [line for line in text.splitlines() if words_of(line) not in printed] == []
    real("stats_file:s.json")
    made = (tmp_path / "s.json").read_text()
    assert [key for key in re.findall(r'"\w+":', json_text) if key not in made] == []
    real("stats_file:s.xml")
    tags = {words_of(line) for line in (tmp_path / "s.xml").read_text().splitlines()}
    assert [line for line in xml.splitlines() if words_of(line) not in tags] == []
