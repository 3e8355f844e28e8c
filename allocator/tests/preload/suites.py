"""The programs' own test suites, a fixed part of each: what they say of each of their tests is compared.

A suite's output is one line a test, `name: result`, sorted; a test that fails without a library as well is no
difference. What is left out is named in the suite's `left_out` with the reason. Where Debian packs no tests, they come
from the source package.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from preload import selection
from preload.program import Program
from preload.session import Session

PYTHON = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}


@dataclass(frozen=True)
class Suite:
    """`packages`: of Debian, that bring the program and the tools; `left_out`: test -> why it is not run."""

    program: Program
    packages: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def results(text: str, pattern: str) -> list[str]:
    """The lines that match, as `name: result`; a name that comes again is numbered; addresses and times go."""
    seen: dict[str, int] = {}
    lines = []
    for match in re.finditer(pattern, text, re.MULTILINE):
        name = re.sub(r"0x[0-9a-f]+|\btmp_\w+|\b\d+(\.\d+)? ?(ms|us|s|seconds?)\b", "N", match["name"].strip())
        seen[name] = seen.get(name, 0) + 1
        number = f" ({seen[name]})" if seen[name] > 1 else ""
        lines.append(f"{name}{number}: {match['result'].strip()}")
    return lines


def report(lines: Iterable[str]) -> str:
    return "\n".join(sorted(lines))


def tap(name: str, status: int, text: str) -> list[str]:
    """The lines of a test that speaks the Test Anything Protocol, and how it ended."""
    found = results(text, r"^ *(?P<result>ok|not ok) +(?P<name>\d+.*)$")
    return [f"{name}: ended with {status}", *(f"{name} {line}" for line in found)]


def copied(session: Session, part: str) -> Path:
    """A folder of the source, where a suite may write."""
    return Path(shutil.copytree(session.source / part, session.folder / Path(part).name, symlinks=True))


def each(
    names: str, run: Callable[[Session, str], list[str]], prepare: Callable[[Session], object] = lambda _: None
) -> Callable[[Session], str]:
    """A suite of many programs, one after the other."""

    def play(session: Session) -> str:
        prepare(session)
        return report(line for name in names.split() for line in run(session, name))

    return play


def cpython(session: Session) -> str:
    driver = session.write("driver.py", selection.PYTHON_DRIVER)
    modules = [f"test.test_{name}" for name in selection.CPYTHON.split()]
    session.attempt("python3", driver, "results.txt", *modules, extra=PYTHON)
    return (session.folder / "results.txt").read_text()


def numpy(session: Session) -> str:
    files = [f"/usr/lib/python3/dist-packages/numpy/{name}.py" for name in selection.NUMPY.split()]
    command = "python3 -m pytest -p no:cacheprovider -p no:hypothesispytest --color=no -v -x --maxfail=1000".split()
    _, text = session.attempt(*command, *files, extra={**PYTHON, "OPENBLAS_NUM_THREADS": "2"})
    return report(results(text, r"^\S*/numpy/(?P<name>.*) (?P<result>PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)\b"))


def glib(session: Session, name: str) -> list[str]:
    folder = "/usr/libexec/installed-tests/glib"
    extra = {"G_TEST_SRCDIR": folder, "G_TEST_BUILDDIR": folder}
    return tap(name, *session.attempt(f"{folder}/{name}", "--tap", extra=extra))


def ruby(session: Session) -> str:
    source = session.source
    command = f"ruby --disable=gems -I {source}/tool/lib {source}/test/runner.rb -v --seed=1 --color=never".split()
    files = [source / f"test/ruby/test_{name}.rb" for name in selection.RUBY.split()]
    # Its limits are wall time, of a quiet machine.
    _, text = session.attempt(*command, *files, extra={"RUBY_TEST_TIMEOUT_SCALE": "10"})
    ran = results(text, r"^\[ *\d+/\d+\] (?P<name>Test\S*#.+?) = (?P<result>)")
    return report(ran + results(text, r"^ *\d+\) (?P<result>Failure|Error|Skipped):\n(?P<name>Test\S+)"))


def perl_library(session: Session) -> None:
    """The tests take their modules from ../lib: here the machine's own."""
    copied(session, "t")
    session.run("bash", "-ec", selection.PERL_LIBRARY)


def perl(session: Session, name: str) -> list[str]:
    return tap(name, *session.attempt("perl", f"{name}.t", under="t", extra={"PERL_HASH_SEED": "0"}))


def php(session: Session) -> str:
    for part in ("Zend/tests", "ext/standard/tests"):
        shutil.copytree(session.source / part, session.folder / part)
    shutil.copy(session.source / "run-tests.php", session.folder)
    command = "php run-tests.php -q -p /usr/bin/php8.2 -W results.txt --offline --no-color".split()
    session.attempt(*command, *selection.PHP.split())
    text = (session.folder / "results.txt").read_text()
    return report(results(text, r"^(?P<result>[A-Z]+)\t(?P<name>.*)$"))


def node(session: Session, name: str) -> list[str]:
    extra = {"NODE_TEST_DIR": str(session.folder), "NODE_TEST_KNOWN_GLOBALS": "0"}
    return [f"{name}: {session.attempt('node', session.source / f'test/parallel/test-{name}.js', extra=extra)[0]}"]


def tcl(session: Session) -> str:
    copied(session, "tests")
    files = " ".join(f"{name}.test" for name in selection.TCL.split())
    command = ["tclsh8.6", "tests/all.tcl", "-file", files, "-verbose", "pass skip", "-tmpdir", "."]
    _, text = session.attempt(*command)
    found = results(text, r"^\+\+\+\+ (?P<name>\S+) (?P<result>PASSED|SKIPPED: \S+)")
    return report(found + results(text, r"^==== (?P<name>\S+) .*(?P<result>FAILED)$"))


def redis(session: Session) -> str:
    (session.folder / "src").mkdir()
    for name in ("server", "cli", "benchmark", "check-rdb", "check-aof", "sentinel"):
        (session.folder / f"src/redis-{name}").symlink_to(f"/usr/bin/redis-{name}")
    copied(session, "tests")
    (session.folder / "redis.conf").symlink_to(session.source / "redis.conf")
    (session.folder / "tests/tmp").mkdir(exist_ok=True)
    command = "tclsh8.6 tests/test_helper.tcl --clients 1 --durable --no-latency --baseport 27111".split()
    units = [word for unit in selection.REDIS.split() for word in ("--single", f"unit/{unit}")]
    text = re.sub(r"\x1b\[[0-9;]*m", "", session.attempt(*command, *units)[1])
    line = r"^\[(?P<result>ok|err|exception|skip|ignore)\]: (?P<name>.*?)(?: \(\d+ ms\)| in tests/.*)?$"
    return report(results(text, line))


def git(session: Session, name: str) -> list[str]:
    (path,) = (session.source / "t").glob(f"{name}-*.sh")
    extra = {"GIT_TEST_INSTALLED": "/usr/bin", "TEST_OUTPUT_DIRECTORY": str(session.folder), "GIT_TEST_CHAIN_LINT": "0"}
    extra["TEST_NO_MALLOC_CHECK"] = "1"  # else the tests replace LD_PRELOAD by glibc's checking malloc
    command = ("bash", path, f"--root={session.folder}")
    return tap(name, *session.attempt(*command, extra=extra, under=session.source / "t"))


def sqlite(session: Session, name: str) -> list[str]:
    status, text = session.attempt(session.source / "testfixture", session.source / f"test/{name}.test")
    found = results(text, r"^(?P<name>\S+)\.\.\. ?(?P<result>Ok|Omitted|.*\S.*)$")
    return [f"{name}: ended with {status}", *(f"{name} {line}" for line in found)]


def bash(session: Session, name: str) -> list[str]:
    folder = str(session.folder)
    extra = {"THIS_SH": "/bin/bash", "BASH_TSTOUT": f"{folder}/out", "TMPDIR": folder, "BUILD_DIR": folder}
    extra["PATH"] = f"{folder}/tests:/usr/bin:/bin"
    return [f"{name}: ended with {session.attempt('sh', f'run-{name}', under='tests', extra=extra)[0]}"]


def glibc(session: Session) -> str:
    """Several at once, because many wait; as glibc wants it, by a user who may not change the machine."""
    session.folder.chmod(0o755)
    session.witness.touch()
    session.witness.chmod(0o666)
    programs = session.source / "freestone"
    names = [str(path.relative_to(programs)) for path in programs.rglob("*") if path.is_file()]
    names = [name for name in names if not any(fnmatch(name, left) for left in selection.GLIBC_LEFT_OUT)]

    def test(name: str) -> str:
        scratch = session.folder / name
        scratch.mkdir(mode=0o777, parents=True)
        scratch.chmod(0o777)
        extra = {"TIMEOUTFACTOR": "100", "HOME": str(scratch), "TMPDIR": str(scratch)}
        user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "--default-signal")
        status, _ = session.attempt(
            *user, programs / name, under=name, extra={**extra, **selection.GLIBC_SETTINGS.get(name, {})}
        )
        return f"{name}: {'ok' if status == 0 else f'ended with {status}'}"

    with ThreadPoolExecutor(4) as pool:
        return report(pool.map(test, names))


def postgres(session: Session) -> str:
    copied(session, "src/test/regress")
    session.run("bash", "-ec", selection.POSTGRES_START)
    try:
        return report(line for name in selection.POSTGRES.split() for line in postgres_test(session, name))
    finally:
        session.run("bash", "-ec", selection.POSTGRES_STOP)


def postgres_test(session: Session, name: str) -> list[str]:
    base = session.folder / "regress"
    extra = {"PG_ABS_SRCDIR": str(base), "PG_LIBDIR": "/usr/lib/postgresql/15/lib", "PG_DLSUFFIX": ".so"}
    extra |= {"PGTZ": "PST8PDT", "PGDATESTYLE": "Postgres, MDY", "PGOPTIONS": "-c intervalstyle=postgres_verbose"}
    extra |= {"PGHOST": str(session.folder), "PGUSER": "postgres"}
    psql = "/usr/lib/postgresql/15/bin/psql -X -a -q -d regression -v HIDE_TABLEAM=on -v HIDE_TOAST_COMPRESSION=on"
    status, text = session.attempt("bash", "-c", f"{psql} < sql/{name}.sql 2>&1", under=base, extra=extra)
    expected = [path.read_text() for path in base.glob(f"expected/{name}*.out")]
    verdict = "ok" if text in expected else "not as expected"
    return [f"{name}: {verdict}, {len(text.splitlines())} lines, status {status}"]


def jq(session: Session) -> str:
    tests = session.source / "tests"
    lines = []
    for name in ("jq", "base64", "onig", "optional"):
        status, text = session.attempt("jq", "-L", tests / "modules", "--run-tests", tests / f"{name}.test")
        lines += [f"{name}: ended with {status}", *(f"{name}: {line}" for line in text.splitlines())]
    return report(lines)


def suite(needs: str, served: str, play: Callable[[Session], str], packages: str, source: str = "", build: str = "",
          left_out: Mapping[str, str] | None = None) -> Suite:  # fmt: skip
    return Suite(Program(tuple(needs.split()), served, play, source, build), tuple(packages.split()), left_out or {})


INITDB = "/usr/lib/postgresql/15/bin/initdb"
GLIB = "/usr/libexec/installed-tests/glib/hash"
each_bash = each(selection.BASH, bash, lambda session: copied(session, "tests"))
each_sqlite = each(selection.SQLITE, sqlite)
SUITES: dict[str, Suite] = {
    "cpython": suite("python3", "python3", cpython, "python3 libpython3.11-testsuite"),
    "perl": suite("perl", "perl", each(selection.PERL, perl, perl_library), "perl", "perl"),
    "ruby": suite("ruby", "ruby", ruby, "ruby", "ruby3.1"),
    "redis": suite("redis-server tclsh8.6", "redis-", redis, "redis-server tcl8.6", "redis"),
    "git": suite(
        "git make gcc", "git", each(selection.GIT, git), "git make gcc zlib1g-dev", "git", selection.GIT_BUILD
    ),
    "sqlite": suite("make gcc", "testfixture", each_sqlite, "make gcc tcl8.6-dev", "sqlite3", selection.SQLITE_BUILD),
    "php": suite("php8.2", "php", php, "php8.2-cli", "php8.2"),
    "node": suite("node", "node", each(selection.NODE, node), "nodejs", "nodejs"),
    "postgres": suite(f"{INITDB} setpriv", "postgres", postgres, "postgresql", "postgresql-15"),
    "glibc": suite("gcc setpriv", "tst-", glibc, "gcc", "glibc", selection.GLIBC_BUILD, selection.GLIBC_LEFT_OUT),
    "bash": suite("bash gcc", "bash", each_bash, "bash gcc", "bash", selection.BASH_BUILD),
    "tcl": suite("tclsh8.6", "tclsh8.6", tcl, "tcl8.6", "tcl8.6"),
    "jq": suite("jq", "jq", jq, "jq", "jq"),
    "numpy": suite("python3", "python3", numpy, "python3-numpy python3-pytest python3-hypothesis"),
    "glib": suite(GLIB, "", each(selection.GLIB, glib), "libglib2.0-tests"),
}
