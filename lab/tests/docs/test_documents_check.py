"""Every file, symbol, option and command that a document names exists; docs/TUNING.md follows from the option table.

Symbols are looked for as words in the sources; words of other projects stand in EXTERNAL.
"""

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from freestone_lab.commands import docs
from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.docs import tuning
from freestone_lab.docs.pages import differences
from freestone_lab.workloads.apps import APPS
from freestone_lab.workloads.suites import SUITES

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST = 300  # lines of a written document; the tables of a generated one are as long as the results

SOURCES = (".h", ".hpp", ".c", ".cc", ".cpp", ".def", ".py", ".rs", ".cmake", ".in", ".txt", ".json", ".toml")
BASES = ("", "docs", "allocator", "allocator/src", "allocator/include", "allocator/tests", "lab", "lab/freestone_lab")
# Made by commands, or not of this repository.
UNTRACKED = ("build/", ".venv", "/", "~", "results/", "docs/BENCHMARKS.md", "docs/results", "docs/plots")
EXTERNAL = {"MAP_FIXED_NOREPLACE", "node_exporter", "rt_sigaction", "rt_sigprocmask", "find_package", "pkg_config"}

SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}\S.*$", re.MULTILINE)
RECIPES = re.compile(r"^## Recipes\n.*?(?=^## )", re.MULTILINE | re.DOTALL)  # test_recipes.py carries them out
PATH = re.compile(r"[\w.*%-]+(?:/[\w.*%-]+)+/?|[\w-]+\.(?:md|h|hpp|c|cc|cpp|py|def|toml|txt)")
CONF = re.compile(
    r"FREESTONE_CONF=(?:\"([^\"]*)\"|(\S*))|(?<![\w:])([a-z_]+:[^\s`\",]+(?:,[a-z_]+:[^\s`\",]+)*)(?![\w:])"
)
COMMAND = re.compile(r"(?:\./)?freestone [a-z]")
SYMBOL = re.compile(r"\b(?:[A-Za-z]\w*_\w+|k[A-Z]\w+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*|\w+(?=\())")


def anchors(text: str) -> set[str]:
    """What a link may name behind '#': the headings as GitHub spells them."""
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in HEADING.findall(FENCE.sub("", text))}


@cache
def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout.splitlines()
    return [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]


@cache
def words() -> frozenset[str]:
    """Every identifier of the sources, except of this file, which names some that do not exist."""
    found: set[str] = set()
    for name in tracked():
        path = ROOT / name
        if path.is_file() and path != Path(__file__).resolve() and (path.suffix in SOURCES or name == "freestone"):
            found.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8", errors="replace")))
    return frozenset(found)


@cache
def options() -> dict[str, tuning.Option]:
    return {option.name: option for option in tuning.read_options(ROOT)}


def known_file(folder: Path, target: str) -> bool:
    path = folder / target
    return path.exists() or (path.is_relative_to(ROOT) and str(path.relative_to(ROOT)).startswith(UNTRACKED))


def file_problems(name: str) -> list[str]:
    if name.startswith(UNTRACKED) or "%" in name:
        return []
    found = any(any((ROOT / base).glob(name)) if "*" in name else (ROOT / base / name).exists() for base in BASES)
    return [] if found else [f"no file {name}"]


def option_problems(text: str) -> list[str]:
    problems = []
    for word in filter(None, text.split(",")):
        name, colon, value = word.partition(":")
        option = options().get(name)
        if option is None:
            problems.append(f"no option {name}")
        elif colon and value != "..." and not option.accepts(value):
            problems.append(f"option {name} does not take {value}")
    return problems


def symbol_problems(span: str) -> list[str]:
    problems = []
    for symbol in SYMBOL.findall(span):
        known = symbol in words() or symbol in options() or symbol in EXTERNAL
        # The names of metrics are put together from a prefix, a figure and an ending.
        figure = symbol.removeprefix("freestone_").removesuffix("_total")
        if not known and figure not in words():
            problems.append(f"no symbol {symbol}")
    return problems


def conf_problems(text: str) -> list[str]:
    problems = []
    for quoted, plain, bare in CONF.findall(text):
        given = quoted or plain
        if given and not given.startswith("$"):
            problems += option_problems(given)
        elif bare and bare.split(":")[0] in options():
            problems += option_problems(bare)
    return problems


def is_experiment(span: str) -> bool:
    """Whether it names an experiment of a suite, or several: by the front of their ids, or by a star for the rest."""
    front = span.removesuffix("*").rstrip("/") + "/"
    ids = [run.id for runs in SUITES.values() for run in runs] + [f"app/{app.name}" for app in APPS]
    return any(f"{id_}/".startswith(front) for id_ in ids)


def is_generated(text: str) -> bool:
    return "\nGenerated by `freestone docs`" in text


def problems_of(text: str, folder: Path) -> list[str]:
    """What a document says that is not so."""
    length, own_anchors = len(text.splitlines()), anchors(text)
    text = RECIPES.sub("", text)
    problems = [
        f"link to {t}: no such file" for t in LINK.findall(text) if "://" not in t and not (folder / t).exists()
    ]
    for target, anchor in ANCHOR.findall(text):
        if "://" not in target and anchor not in (anchors((folder / target).read_text()) if target else own_anchors):
            problems.append(f"link to {target}#{anchor}: no such heading")
    blocks = "\n".join(FENCE.findall(text) + INDENTED.findall(text))
    problems += conf_problems(blocks)
    for span in SPAN.findall(FENCE.sub("", text)):
        if COMMAND.match(span) or is_experiment(span):  # commands: test_printed_commands.py
            continue
        if PATH.fullmatch(span):
            problems += file_problems(span)
        elif re.fullmatch(r"[a-z_]+:\S+", span) and "::" not in span:
            problems += option_problems(span)
        else:
            problems += conf_problems(span)
            if "=" not in span and "/" not in span:
                problems += symbol_problems(span)
    if not is_generated(text) and length >= LONGEST:
        problems.append(f"{length} lines; a document stays below {LONGEST}")
    return problems


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_what_documents_name_exists(path: Path) -> None:
    assert problems_of(path.read_text(encoding="utf-8"), path.parent) == []


def test_there_are_documents_to_check() -> None:
    wanted = "README CHANGELOG ARCHITECTURE GLOSSARY TUNING HARDENING COMPATIBILITY OBSERVABILITY CONTRIBUTING"
    assert set(wanted.split()) <= {path.stem for path in DOCUMENTS}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("[x](docs/NOWHERE.md)", "link to docs/NOWHERE.md: no such file"),
        ("see `allocator/src/front/nowhere.cc`", "no file allocator/src/front/nowhere.cc"),
        ("the room `slab/slab.h` and `front/heap.h`", None),
        ("call `freestone_get_statz()`", "no symbol freestone_get_statz"),
        ("call `freestone_get_stats()` or see `kShardsMax`", None),
        ("`kShardsMost`", "no symbol kShardsMost"),
        ("`RoomTree` and `RoomBush`", "no symbol RoomBush"),
        ("`dirty_bites`", "no symbol dirty_bites"),
        ("`dirty_bites:4m`", "no option dirty_bites"),
        ("`thp:sometimes`", "option thp does not take sometimes"),
        ("```\nFREESTONE_CONF=prof:maybe app\n```", "option prof does not take maybe"),
        ('    FREESTONE_CONF="limit_hard:120%" app', "option limit_hard does not take 120%"),
        ('    FREESTONE_CONF="limit_hard:80%,leak:exact" app', None),
        ("`./freestone lib --hardened`, `build`", None),
        ("a\n" * 300, "300 lines; a document stays below 300"),
    ],
)
def test_a_wrong_word_is_noticed(said: str, problem: str | None) -> None:
    assert problems_of(said, ROOT) == ([problem] if problem else [])


@pytest.mark.parametrize("module", docs.MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_is_committed_is_what_is_generated(module: ModuleType) -> None:
    made = module.documents(ROOT)
    assert made, "a result is no longer stored"
    assert differences(ROOT, made) == []


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A copy of the option table, in a tree of its own."""
    path = tmp_path / tuning.TABLE
    path.parent.mkdir(parents=True)
    path.write_text((ROOT / tuning.TABLE).read_text())
    return path


def test_tuning_page_shows_every_option_and_an_edit_is_noticed(tmp_path: Path, table: Path) -> None:
    page = tuning.documents(tmp_path)[tuning.DOCUMENT]
    for line in table.read_text().splitlines():
        if line.startswith("OPTION("):
            assert f"| `{line.split(', ')[1]}` |" in page
    assert "| `dirty_bytes` | `1m` | 0 to 1t |" in page
    assert "| `thp` | `auto` | `off`, `auto`, `always` |" in page
    table.write_text(table.read_text().replace("dirty_bytes, 1048576", "dirty_bytes, 9437184"))
    assert tuning.documents(tmp_path)[tuning.DOCUMENT] != page


def test_a_table_that_is_not_understood_names_the_line(tmp_path: Path, table: Path) -> None:
    table.write_text("// head\nOPTION(flag, broken)\n")
    with pytest.raises(UserError, match=re.escape("options.def:2: expected OPTION(")):
        tuning.read_options(tmp_path)


def test_the_library_takes_the_values_that_the_page_calls_right(tmp_path: Path) -> None:
    """The page's idea of what an option accepts is the library's."""
    library = paths.build_dir() / "libfreestone.so"
    if not library.exists():
        pytest.skip("build/release/libfreestone.so is not built")
    words = ["true", "on", "off", "50%", "101%", "pprof", "report", "auto", "-1", "x"]
    values = [*words, "0", "1", "64", "65", "64k", "2g", "1t", "3600001"]
    pairs = [(option, value) for option in options().values() for value in values if option.kind != "text"]

    def complaints(conf: str) -> int:
        env = {**os.environ, "LD_PRELOAD": str(library), "FREESTONE_CONF": conf}
        done = subprocess.run(["/bin/true"], env=env, cwd=tmp_path, capture_output=True, text=True)
        return done.stderr.count("cannot be")

    wrong = [f"{option.name}:{value}" for option, value in pairs if not option.accepts(value)]
    assert complaints(",".join(wrong)) == len(wrong) > 100
    for option in options().values():
        right = [f"{option.name}:{value}" for taken, value in pairs if taken is option and option.accepts(value)]
        assert complaints(",".join(right)) == 0, right


def test_an_experiment_is_known_by_the_suites() -> None:
    assert problems_of("`pair/calls`, `cross/*` and `app/git`", Path()) == []
    assert problems_of("`pair/nothing-such`", Path()) != []
