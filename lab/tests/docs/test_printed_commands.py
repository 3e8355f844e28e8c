"""Every command that the pages print: the parser accepts it, what it names exists, and it runs in a fresh clone.

In the usual run the clone has this tree's build, and only what takes seconds is run. The long form builds a clone.
"""

import contextlib
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from command_tools import clone_into

from freestone_lab.commands import options
from freestone_lab.core import paths
from freestone_lab.trace import recording

ROOT = paths.root()
BUILD = paths.build_dir()
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "rust/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
RECIPES = re.compile(r"^## Recipes\n.*?(?=^## )", re.MULTILINE | re.DOTALL)  # test_recipes.py carries them out
WORD = r"(?:--version|(?!process |of |is )[a-z][a-z-]*)"  # a command, or what should be one
FREESTONE = re.compile(rf"(?<![\w/-])(?:\./)?freestone ({WORD}(?![^\s`;])[^`\n;]*)")
START = re.compile(
    rf"(?:[A-Z_]+=(?:\"[^\"]*\"|'[^']*'|\$\([^)]*\)|\S)* )*"
    rf"(?:(?:\./)?freestone {WORD}|ctest |cmake |build/|python3 (?:allocator|srv|app)|cd lab|(?:\./)?app(?: |$))"
)

# What stands for the reader's own: in a clone there are programs `app` and `server`, and a server that runs.
PLACEHOLDERS = {
    r"-- (CMD ARG\.\.\.|CMD|YOUR PROGRAM)": "-- app", r"\bstats FILE": "stats app.prom",
    r"\bFILE\b": "A.json", r"for (30s|10m)": "for 1s", r"\$!|\bPID\b|\$\(pidof server\)": "$(pidof $PWD/server)",
    r"python3 (srv|app)\.py": "python3 -c pass", r"/tmp/": "heaps/",
    rf"(?<![\w./-])freestone (?={WORD})": "./freestone ",
}  # fmt: skip
ENDLESS = r"freestone (top|agent)"  # ends at the reader's word
FINDS = r"freestone (doctor|compare|replay|advise|diff|docs --release)"  # status 1 says what was found, 3 of `diff`
# What only the long form starts.
LONG = (
    r"freestone (compare|advise|replay)\b(?!.*(--help|--server))",  # measures for a minute or more
    r"freestone (agent|build|package|docs)|\bctest |sampling_cost|api_\w*_test",  # builds, or needs what a test builds
)
# What no form of this test starts, and why.
ELSEWHERE = {
    r"freestone test": "it runs this test",
    r"freestone (bench|trace c(orpus|ost))": "measures for many minutes and writes what docs/results keeps",
    r"freestone (un)?install|cmake --install": "installs: allocator/tests/packaging/install_test.py",
    r"freestone peers install": "fetches sources: peers/test_install.py",
    r"--server": "needs wrk: commands/test_servers.py",
    r"cd lab": "`freestone test lab` runs it",
    r"--push": "needs a server that takes profiles: heap/test_agent.py",
    r"musl|MITIGATIONS|TESTS=OFF|build/locks|--preset (fuzz|aarch64|dev)": "builds another variant of everything",
    r"STORM|SCALE=40|WORKLOADS=1000|torture\.whole|enumerated --|-R (hardened|stress|model)": "takes many minutes",
    r"FOLDER|before\.heap": "names what only the reader has",
    r"freestone (advise|agent|record|run|stats|top|trace|(profile|leaks)( -\S+( \S+\.json)?)?)$": "a mention only",
    r"--with (isoalloc|mimalloc)": "needs what is not always installed, or built",
}


@dataclass(frozen=True)
class Printed:
    """A command of a page. Within a sentence it may lack its arguments."""

    page: Path
    line: str
    mention: bool = False

    def runnable(self) -> str:
        line = self.line
        for pattern, text in PLACEHOLDERS.items():
            line = re.sub(pattern, text, line)
        return line


def of_page(page: Path) -> list[Printed]:
    text = RECIPES.sub("", page.read_text(encoding="utf-8"))
    prose = FENCE.sub("", text)
    found = []
    for line in [line for block in FENCE.findall(text) for line in block.splitlines()] + INDENTED.findall(prose):
        command, _, comment = line.partition("  #")
        if START.match(command):
            found.append(Printed(page, command.strip(" \\")))
            found += [Printed(page, f"freestone {words}", True) for words in FREESTONE.findall(comment)]
    return found + [Printed(page, s.replace("\\|", "|"), True) for s in SPAN.findall(prose) if START.match(s)]


PRINTED = [printed for page in PAGES for printed in of_page(page)]


def problem(printed: Printed) -> str | None:
    """What the parser of the options says against it."""
    for words in FREESTONE.findall(re.sub(r"\$\([^)]*\)|\$!|\bPID\b", "1", printed.line)):
        lexer = shlex.shlex(words, posix=True, punctuation_chars=";|&>")
        lexer.whitespace_split = True
        given = list(itertools.takewhile(lambda word: not set(word) <= set(";|&>"), lexer))
        name, rest = options.select(given)
        if given[0] in ("build", "install", "uninstall", "--version"):  # the shell command's own
            named = {word.partition("=")[0] for word in rest if word.startswith("-")}
            if unknown := named - set(re.findall(r"--?\w+", (ROOT / "freestone").read_text())):
                return f"no option {unknown.pop()}"
            continue
        if not name:
            return f"no command {given[0]}"
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                extra = options.parser_of(name).parse_known_args(rest)[1]
            except SystemExit as end:
                lacks = re.search(r"required|expected (one|at least one) argument", said.getvalue())
                if end.code and not (printed.mention and lacks):
                    return said.getvalue()
                continue
        if extra and not (printed.mention and not any(word.startswith("-") for word in extra)):
            return f"unrecognized: {' '.join(extra)}"
    return None


def to_run(long: bool) -> list[str]:
    """Each command that the usual run, or the long form, starts; once, and what builds first."""
    found: dict[str, None] = {}
    for printed in PRINTED:
        apart = any(re.search(pattern, printed.line) for pattern in (*ELSEWHERE, *(() if long else LONG)))
        if not apart and problem(Printed(printed.page, printed.line)) is None:
            found[printed.runnable()] = None
    return sorted(found, key=lambda line: "freestone build" not in line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_parser_accepts_every_command(page: Path) -> None:
    assert [(p.line, said) for p in of_page(page) if (said := problem(p))] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("./freestone run --hardend -- app", "--hardend"),
        ("./freestone compare --rounds two -- app", "--rounds"),
        ("freestone trace cut app.fst", "required"),
        ("./freestone compair -- app", "no command compair"),
        ("./freestone build --prest dev", "no option --prest"),
        ("./freestone lib --hardened", None),
        ("./freestone profile --pid $(pidof server) --for 30s", None),
    ],
)
def test_a_wrong_command_is_noticed(line: str, said: str | None) -> None:
    found = problem(Printed(ROOT, line, False))
    assert found is None if said is None else found is not None and said in found


def test_commands_are_found_and_every_pattern_is_needed() -> None:
    assert len(PRINTED) > 100 and len(to_run(False)) > 30
    patterns = (*LONG, *ELSEWHERE, *PLACEHOLDERS, ENDLESS, FINDS)
    assert [p for p in patterns if not any(re.search(p, printed.line) for printed in PRINTED)] == []


@cache
def targets() -> str:
    done = subprocess.run(["ninja", "-C", str(BUILD), "-t", "targets", "all"], capture_output=True, text=True)
    return done.stdout


@pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="the release build is not configured")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_command_names_is_built_by_a_line_before_it(page: Path) -> None:
    """`compare` builds the libraries and no test."""
    text = page.read_text(encoding="utf-8").replace("\\|", "|")
    for printed in of_page(page):
        line = printed.line
        built = re.findall(r"\./freestone build ([a-z]\w*)", text[: text.index(line) + len(line)])
        if named := re.search(r"build/release/(allocator/tests/\S+)", line):
            assert re.search(rf"^{named[1]}(/\S+)?: ", targets(), re.MULTILINE), line
            assert {Path(named[1]).name, "all"} & set(built), f"no line before builds it: {line}"
        if wanted := re.search(r"ctest --test-dir build/release -R ('[^']*'|\S+)", line):
            listing = ["ctest", "--test-dir", str(BUILD), "-N", "-R", wanted[1].strip("'")]
            found = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
            assert re.search(r"Total Tests: [1-9]", found), line
            assert "all" in built, f"no line before builds the tests: {line}"
        for target in re.findall(r"freestone build ([a-z]\w*)", line):
            assert re.search(rf"^(\S*/)?{target}: ", targets(), re.MULTILINE), line
        for preset in re.findall(r"--preset (\w+)", line):
            assert f'"name": "{preset}"' in (ROOT / "CMakePresets.json").read_text(), line
        for script in re.findall(r"python3 (allocator\S+)", line):
            assert (ROOT / script).is_file(), line


SERVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char** words) {
  if (getenv("FOR_EVER")) puts(words[0]), fflush(stdout);
  do {
    for (int i = 0; i < 20000; i++) free(memset(malloc(1000 + i % 9000), 1, 1000));
    usleep(20000);
  } while (count == 1 && getenv("FOR_EVER"));
  return 0;
}
"""


class Clone:
    """With stand-ins for what the pages call the reader's own. `build`: a build that it uses instead of its own."""

    def __init__(self, parent: Path, server: Path, build: Path | None) -> None:
        self.folder, self.given = parent / "clone", parent / "given"
        programs = parent / "bin"
        self.given.mkdir()
        programs.mkdir()
        clone_into(self.folder)
        if build is not None:
            (self.folder / "build").symlink_to(build)
        for place in (programs / "app", self.folder / "app", self.folder / "server"):
            shutil.copy(server, place)
        self.env = {n: value for n, value in os.environ.items() if not n.startswith(("FREESTONE", "PYTHON"))}
        self.env |= {"PATH": f"{programs}:{self.env['PATH']}", "HOME": str(parent), "TERM": "dumb"}
        if shutil.which("ccache"):
            self.env |= {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX")}
            self.env |= {"CCACHE_BASEDIR": str(self.folder), "CCACHE_NOHASHDIR": "1"}
        for name, program in {"app.fst": "clang", "a.fst": "vim", "b.fst": "vim"}.items():
            shutil.copy(ROOT / f"trace/corpus/{program}.fst", self.given / name)
        (self.given / "mtrace.txt").write_text("= Start\n@ a:[0x1] + 0x1000 0x10\n@ a:[0x1] - 0x1000\n= End\n")
        (self.given / "heaps").mkdir()
        for name in ("A.json", "B.json"):
            self.run(f"./freestone compare --only freestone --rounds 8 --json ../given/{name} -- app")
        self.run("FREESTONE_CONF=stats_file:../given/app.prom LD_PRELOAD=$(./freestone lib) app")
        self.run("FREESTONE_CONF=prof:on,prof_file:../given/heaps/1.heap LD_PRELOAD=$(./freestone lib) app")

    def run(self, line: str) -> None:
        shutil.copytree(self.given, self.folder, dirs_exist_ok=True)
        wanted = (0, 1, 3) if re.search(FINDS, line) else (0,)
        if re.search(ENDLESS, line):
            line, wanted = f"timeout -s INT 2 {line}", (0, 124, 130)
        done = subprocess.run(
            ["/bin/bash", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=2400,
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
        assert done.returncode in wanted, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        line = "FOR_EVER=1 LD_PRELOAD=$(./freestone lib) exec ./server"
        words = ["/bin/bash", "-c", line]
        with subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None and server.stdout.readline()
                yield
            finally:
                server.kill()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, compile_to_preload: Callable[[str, str], Path]) -> Iterator[Clone]:
    made = Clone(tmp_path_factory.mktemp("printed"), compile_to_preload("server.c", SERVER), paths.root() / "build")
    with made.serving():
        yield made


@pytest.mark.skipif(not (BUILD / recording.WRITER).exists(), reason="the recorder is not built")
@pytest.mark.parametrize("line", to_run(False))
def test_a_command_of_a_page_runs_in_a_clone(line: str, clone: Clone) -> None:
    clone.run(line)


@pytest.mark.long
def test_every_command_of_the_pages_runs_in_a_clone_without_a_build(
    tmp_path: Path, compile_to_preload: Callable[[str, str], Path]
) -> None:
    made = Clone(tmp_path, compile_to_preload("server.c", SERVER), None)
    with made.serving():
        for line in to_run(True):
            made.run(line)
