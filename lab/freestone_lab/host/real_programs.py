"""`freestone test --programs`: real programs of Debian, suites of their own, other releases, and programs built for
musl, under both libraries.

The tables, and the code that compares them, lie in allocator/tests/preload. This module starts and reads them.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError

RESULT = Path("docs/results/programs.json")
SUITES = Path("docs/results/suites.json")
ROOTS = Path("docs/results/roots.json")
TARGETS = ("freestone", "freestone_hardened", "witness", "peak", "calls_probe", "programs_for_roots")
MUSL = "musl"
SCHEMA = "freestone-programs/1"
ROOTS_SCHEMA = "freestone-roots/1"
COMMAND = "freestone test --programs"


def tests() -> Path:
    return paths.root() / "allocator" / "tests"


def environment() -> dict[str, str]:
    built = paths.build_dir()
    libraries = (built / "libfreestone.so", built / "libfreestone-hardened.so")
    return {
        **os.environ,
        "PYTHONPATH": str(tests()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "FREESTONE_LIBRARY": ":".join(map(str, libraries)),
        "FREESTONE_PROBES": str(built / "allocator" / "tests" / "probes"),
        "FREESTONE_SOURCES": str(paths.cache_dir() / "sources"),
    }


def _listed(words: str) -> list[str]:
    """What a Python expression over the two tables gives."""
    command = ["/usr/bin/python3", "-c", f"from preload import programs, roots, suites; print(*sorted({words}))"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.split()


def packages(names: Sequence[str] = ()) -> list[str]:
    """The Debian packages that the tables of `names` (none: all) need, and what makes roots, which have their own."""
    if names and all(name.partition("/")[0] == "roots" for name in names):
        return ["mmdebstrap"]
    return _listed("{'mmdebstrap', *programs.PACKAGES, *(p for s in suites.SUITES.values() for p in s.packages)}")


def must_be_known(names: Sequence[str]) -> None:
    """UserError for a name that no table has."""
    tables = "[*programs.PROGRAMS, *(f'suites/{s}' for s in suites.SUITES), *(f'roots/{r}' for r in roots.RELEASES)]"
    known = ["suites", "roots", MUSL, *_listed(tables)]
    for name in names:
        if name not in known:
            raise UserError(f"test --programs: unknown program '{name}'; expected one of {', '.join(known)}")


def survey(names: Sequence[str], say: Callable[[str], None]) -> int:
    """Runs everything, or what is named: a program, `suites`, `suites/NAME`, `roots` (other releases of Debian),
    `roots/NAME` or `musl`. Whole tables but that of musl are stored for the documents. Returns the exit status."""
    root = paths.root()
    build = ["cmake", "--build", str(paths.build_dir()), "-j", str(os.cpu_count() or 1), "--target", *TARGETS]
    for step in (["cmake", "-S", str(root), "--preset", "release"], build):
        if subprocess.run(step, cwd=root, stdout=2).returncode != 0:
            raise UserError(f"'{' '.join(step)}' failed")
    status = musl() if MUSL in names or not names else 0
    for path, kind, chosen in runs(names):
        result = paths.cache_dir() / path.name if chosen else root / path
        result.parent.mkdir(parents=True, exist_ok=True)
        words = ["preload.roots", str(result)] if kind == "roots" else ["preload.survey", str(result), kind]
        command = ["/usr/bin/python3", "-m", *words, *chosen]
        status |= subprocess.run(command, env=environment(), cwd=tests()).returncode
        say(f"written: {result}")
    return status


def musl() -> int:
    """The programs that are built for musl, over libraries that the small test of musl has built."""
    status = 0
    for command in (["musl/musl_test.py"], ["-m", "musl.programs"]):
        words = ["/usr/bin/python3", *command, str(paths.build_dir())]
        status |= subprocess.run(words, env=environment(), cwd=tests()).returncode
    return status


def runs(names: Sequence[str]) -> list[tuple[Path, str, list[str]]]:
    """What `names` asks for: result file, table, and its entries (none: all)."""
    tables = {"suites": SUITES, "roots": ROOTS}
    programs = [name for name in names if name.partition("/")[0] not in (*tables, MUSL)]
    result = [(RESULT, "programs", programs)] if programs or not names else []
    for kind, path in tables.items():
        chosen = [name.removeprefix(f"{kind}/") for name in names if name.startswith(f"{kind}/")]
        if chosen or kind in names or not names:
            result.append((path, kind, [] if kind in names else chosen))
    return result
