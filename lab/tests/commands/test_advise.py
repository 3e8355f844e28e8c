"""`freestone advise` and what a newcomer may expect of it and of `compare`; each test is a complaint that was made."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_tools import CLI, LIBRARY, freestone, needs_library
from trace_tools import record

from freestone_lab.commands import options
from freestone_lab.core import paths
from freestone_lab.core.result import Peer
from freestone_lab.core.result_file import load
from freestone_lab.peers import packages
from freestone_lab.trace import recording

SERVER = """
import os, socket, sys, time
if "--daemonize" in sys.argv and os.fork():
    sys.exit(0)
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
time.sleep(1e6)  # who waited for its end would hang
"""
PYTHON = str(Path(sys.executable).resolve())


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FREESTONE_ROOT", str(paths.root()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield


def files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


@pytest.fixture
def only(controls: dict[str, Peer]) -> list[str]:
    return ["--only", f"pass={controls['passthrough'].path}"]


ANSWERS = "keep |use |your choice, |not known yet: "


def card_of(text: str) -> dict[str, str]:
    return {line.split(" ", 1)[0]: line.split(" ", 1)[1].strip() for line in text.strip().splitlines()}


def test_the_card_has_at_most_ten_lines_and_says_what_to_use(
    work: Path, tmp_path: Path, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = freestone(tmp_path, "advise", *only, "--runs", "5", "--", str(work), "100000")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    assert len(lines) <= 10
    card = card_of(done.stdout)
    assert {"values", "machine", "sure", "page"} <= set(card)
    assert re.match(ANSWERS, lines[0]) and re.match(r"program +answer +best candidate +CPU +memory", lines[1])
    assert "at most 5 % that any statement here is wrong" in card["sure"]
    change = r"[-+][\d.]+ % \([-+][\d.]+ … [-+][\d.]+\)"
    assert re.search(f" pass +{change} +{change} +5 rounds, ", lines[2]), lines[2]
    assert (tmp_path / card["page"]).is_file(), "the page lies where the user is"
    page = (tmp_path / card["page"]).read_text()
    assert page.index(lines[-2].split(" ", 1)[1].strip()[:30]) < page.index("The comparison"), "it opens with the card"
    assert 'class="winner"' not in page
    assert load(files(tmp_path, "freestone-advise-*.json")[0]).experiments


def test_two_lines_say_what_the_program_is_and_how_long_it_takes(work: Path, tmp_path: Path, only: list[str]) -> None:
    done = freestone(tmp_path, "advise", *only, "--runs", "1", "--", str(work), "1000")
    assert re.search(r"^work: a program that ends, after \S+ s, with 1 thread; malloc by glibc$", done.stderr, re.M)
    assert re.search(r"^measuring 2 allocators takes about ", done.stderr, re.M)


@pytest.mark.parametrize("command", ["advise", "compare"])
@pytest.mark.parametrize("form", ["server", "daemon"])
def test_a_program_that_never_ends_is_recognised(command: str, form: str, tmp_path: Path, only: list[str]) -> None:
    script = tmp_path / "serve.py"
    script.write_text(SERVER)
    extra = ["--daemonize"] if form == "daemon" else []
    done = freestone(tmp_path, command, *only, "--", PYTHON, str(script), *extra)
    assert done.returncode == 2
    assert ("forks away" if form == "daemon" else "is a server") in done.stderr
    assert re.search(r"freestone advise --server '.*' --ready \d+ --load ", done.stderr)
    assert not files(tmp_path, "freestone-*.json")


@pytest.mark.parametrize("command", ["advise", "compare"])
def test_a_program_that_leaves_state_behind_is_recognised(command: str, tmp_path: Path, only: list[str]) -> None:
    done = freestone(tmp_path, command, *only, "--", "mkdir", "side")
    assert done.returncode == 2
    assert "leaves state behind" in done.stderr and "--prepare" in done.stderr
    (tmp_path / "side").rmdir()
    again = freestone(tmp_path, command, *only, "--runs", "1", "--cleanup", "rmdir side", "--", "mkdir", "side")
    assert again.returncode == 0, again.stderr
    assert not (tmp_path / "side").exists()


def test_habits_of_other_tools(work: Path, tmp_path: Path, only: list[str]) -> None:
    marks = tmp_path / "marks"
    done = freestone(
        tmp_path, "advise", *only, "--runs", "2", "--warmup", "1", "--prepare", f"echo p >> {marks}", "--cleanup",
        f"echo c >> {marks}", "--ignore-failure", "--shell", "--", f"{work} 1000; exit 7",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = marks.read_text().split()
    assert said == ["p", "c"] * (len(said) // 2) and len(said) >= 2 * 2 * 2
    assert "ends with status 7" in done.stderr
    failing = freestone(tmp_path, "advise", *only, "--shell", "--", f"{work} 1000; exit 7")
    assert failing.returncode == 2 and "exit status 7" in failing.stderr


@pytest.mark.all
def test_options_are_swept_in_the_same_run(work: Path, tmp_path: Path, controls: dict[str, Peer]) -> None:
    given = ["--only", f"leaking={controls['leaking'].path}", "--option", "leaking:FREESTONE_CONTROL_EVERY=2,1000000"]
    done = freestone(tmp_path, "advise", *given, "--runs", "3", "--json", "r.json", "--", str(work), "200000")
    assert done.returncode == 0, done.stderr
    result = load(tmp_path / "r.json")
    values = {p.name: dict(p.env).get("FREESTONE_CONTROL_EVERY") for p in result.peers}
    assert values["leaking FREESTONE_CONTROL_EVERY=2"] == "2"
    assert "leaking FREESTONE_CONTROL_EVERY=1000000" in values
    assert "options" in card_of(done.stdout)
    wrong = freestone(tmp_path, "advise", *given[:2], "--option", "nobody:x=1", "--", str(work))
    assert wrong.returncode == 2 and "nobody" in wrong.stderr


@pytest.mark.parametrize("command", ["bench", "replay", "compare", "advise"])
def test_every_command_that_measures_takes_settings(command: str) -> None:
    setting = "mimalloc:MIMALLOC_ALLOW_THP=0"
    words = ["--option", setting, *(["x.fst"] if command == "replay" else [])]
    assert options.parse(command, words).option == [setting]


def test_a_slow_allocator_is_not_recommended(work: Path, tmp_path: Path, controls: dict[str, Peer]) -> None:
    slow = f"slow={controls['costly'].path}"
    words = ["advise", "--only", slow, "--runs", "6", "--", str(work), "50000"]
    done = freestone(tmp_path, *words, FREESTONE_CONTROL_CPU_PERMILLE="900")
    assert done.returncode == 0, done.stderr
    assert card_of(done.stdout)["keep"].startswith("glibc")


def test_an_output_that_cannot_be_written_is_said_before_measuring(work: Path, tmp_path: Path, only: list[str]) -> None:
    done = freestone(tmp_path, "advise", *only, "--runs", "1", "--json", "/proc/none/r.json", "--", str(work), "1000")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    first = done.stderr.index("/proc/none/r.json")
    assert first < done.stderr.index("a program that ends"), "it is said first"
    assert (tmp_path / "state" / "freestone" / "r.json").is_file(), "and the results are somewhere"


def test_compare_leaves_its_results_where_the_user_is(work: Path, tmp_path: Path, only: list[str]) -> None:
    done = freestone(tmp_path, "compare", *only, "--rounds", "3", "--", str(work), "50000")
    assert done.returncode == 0, done.stderr
    assert len(files(tmp_path, "freestone-compare-*.json")) == len(files(tmp_path, "freestone-compare-*.html")) == 1
    table = [line for line in done.stdout.splitlines() if re.match(r"(allocator|glibc|pass) ", line)]
    assert table and max(map(len, table)) <= 80
    assert "…-" not in done.stdout


@pytest.mark.all
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["advise", "compare"])
def test_being_ended_leaves_what_was_measured(
    command: str, number: signal.Signals, work: Path, tmp_path: Path, only: list[str]
) -> None:
    budget = ["--time-limit", "600s"] + (["--precision", "0.0001%"] if command == "compare" else [])
    argv = [*CLI, command, *only, *budget, "--json", "r.json", "--", str(work), "2000000"]
    process = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "round 2" in line:
            break
    process.send_signal(number)
    said = process.communicate()[0]
    assert process.returncode == 128 + number
    assert command == "advise" or "interrupted: fewer rounds than planned" in said
    assert any(s.round > 0 for s in load(tmp_path / "r.json").experiments[0].samples)


def test_the_baseline_is_named_rightly_where_a_program_brings_an_allocator(tmp_path: Path, only: list[str]) -> None:
    library = next(Path("/usr/lib").glob("*/libjemalloc.so.2"), None)
    if library is None:
        pytest.skip("libjemalloc2 is not installed")
    source = tmp_path / "own.c"
    source.write_text("#include <stdlib.h>\nint main(void) { return malloc(100) == NULL; }\n")
    subprocess.run(["cc", "-fno-builtin", str(source), str(library), "-o", str(tmp_path / "own")], check=True)
    done = freestone(tmp_path, "advise", *only, "--runs", "3", "--json", "r.json", "--", "./own")
    assert done.returncode == 0, done.stderr
    assert "brings jemalloc" in done.stderr
    result = load(tmp_path / "r.json")
    assert result.baseline == "its own jemalloc"
    assert {p.name for p in result.peers} == {"its own jemalloc", "pass", "glibc"}
    assert next(p for p in result.peers if p.name == "glibc").path, "glibc's malloc is preloaded like the others"


@pytest.mark.timing
@pytest.mark.parametrize("command", ["advise", "compare"])
def test_a_limit_is_kept_and_answers_something(command: str, work: Path, tmp_path: Path, only: list[str]) -> None:
    begun = time.monotonic()
    done = freestone(tmp_path, command, *only, "--time-limit", "20s", "--", str(work), "3000000")
    assert time.monotonic() - begun < 22
    assert done.returncode == 0, done.stderr
    assert "pass" in done.stdout


def test_a_running_server_is_told_from_a_program(tmp_path: Path, only: list[str]) -> None:
    script = tmp_path / "serve.py"
    script.write_text(SERVER.replace("listener.listen()", "listener.listen(); print('up', flush=True)"))
    process = subprocess.Popen([PYTHON, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        done = freestone(tmp_path, "advise", *only, "--pid", str(process.pid))
        assert done.returncode == 2
        assert re.search(r": a server on port \d+", done.stdout)
        assert "freestone advise --server" in done.stderr
    finally:
        process.kill()
        process.communicate()


@pytest.mark.timing
def test_a_server_that_never_gets_ready_ends_within_the_limit(tmp_path: Path, only: list[str]) -> None:
    """It ignores SIGTERM, too."""
    server = f"sh -c {shlex.quote('trap : TERM; while :; do sleep 1; done')}"
    words = ["--budget", "4s", "--server", server, "--ready", "never said", "--load", "true"]
    begun = time.monotonic()
    done = freestone(tmp_path, "advise", *only, *words)
    assert done.returncode == 2 and "the server was not ready within 4 s (line never said)" in done.stderr, done.stderr
    assert time.monotonic() - begun < 4 + 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected one of|needs one of"),
        (["--server", "x", "--load", "true"], "--server needs --ready"),
        (["--server", "x", "--ready", "1", "--load", "nobody-has-this"], "nobody-has-this"),
        (["--server", "x", "--ready", "70000", "--load", "true"], "70000"),
        (["--server", "x", "--ready", "80", "--load", "true", "--stop", "NEVER"], "NEVER"),
        (["--server", "x", "--ready", "80", "--load", "true", "--requests-from", "[0-9]+"], "a pattern with one group"),
        (["--server", "x", "--ready", "80", "--load", "true", "--requests-from", "("], r"--requests-from '\('"),
        (["--pid", "999999999"], "no such process"),
        (["--time-limit", "soon", "--", "true"], "soon"),
        (["--only", "jemallok", "--", "true"], "did you mean 'jemalloc'"),
        (["--option", "dirty", "--", "true"], "expected OPTION=VALUE"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = freestone(tmp_path, "advise", *words)
    assert done.returncode == 2
    assert re.search(said, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.all
def test_a_recorded_program_is_answered_for(tmp_path: Path, only: list[str]) -> None:
    build = paths.build_dir()
    if not (build / recording.REPLAYER).exists():
        pytest.skip("the recorder is not built")
    record(tmp_path / "app.fst", str(build / "trace_program"), "in-turns", "20000")
    done = freestone(tmp_path, "advise", *only, "--trace", "app.fst", "--runs", "5", "--adopt", "link")
    assert done.returncode == 0, done.stderr
    card = card_of(done.stdout)
    assert " instead of " in card["values"] and re.match(ANSWERS, done.stdout), done.stdout
    assert card["counts"] == "CPU time of the replay, less its own; peak memory with start-up"


@pytest.mark.parametrize("command", ["advise", "compare"])
def test_the_page_opens_in_a_browser_when_asked(
    command: str, work: Path, tmp_path: Path, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    done = freestone(tmp_path, command, *only, "--open", "--runs", "1", "-o", "p.html", "--", str(work), "1000")
    assert done.returncode == 0 and opened == [(tmp_path / "p.html").as_uri()], done.stderr


def test_controls_are_not_listed_as_allocators(tmp_path: Path) -> None:
    listed = freestone(tmp_path, "peers")
    assert listed.returncode == 0
    assert not re.search(r"passthrough|returning-null|corrupting", listed.stdout)


@pytest.mark.all
@pytest.mark.parametrize(
    ("command", "mib", "size"), [("advise", 12.0, "about 12 MiB"), ("compare", 0.3, "less than 1 MiB")]
)
def test_what_is_missing_is_installed_where_that_may_be(
    command: str, mib: float, size: str, work: Path, tmp_path: Path, only: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[str] = []
    may: list[str] | None = []
    monkeypatch.setattr(packages, "missing_peers", lambda _: ["libnobody1"])
    monkeypatch.setattr(packages, "installed_mib", lambda _: mib)
    monkeypatch.setattr(packages, "privilege", lambda: may)

    def install(wanted: list[str]) -> list[str]:
        installed.extend(wanted)
        return []

    monkeypatch.setattr(packages, "install", install)
    words = [*only, "--time-limit", "60s", "--runs", "1", "--", str(work), "1000"]
    done = freestone(tmp_path, command, "--no-install", *words)
    assert f"not here and left out: libnobody1 ({size})\n" in done.stderr and not installed
    first = done.stderr.index("measuring takes at most ")
    assert first < done.stderr.index("libnobody1") < done.stderr.index("a program that ends")
    done = freestone(tmp_path, command, *words)
    assert f"installing libnobody1 ({size})" in done.stderr and installed == ["libnobody1"]
    may = None
    done = freestone(tmp_path, command, *words)
    typed = "type: sudo apt-get update && sudo apt-get install -y libnobody1\n"
    assert f"left out: libnobody1 ({size}); {typed}" in done.stderr and len(installed) == 1


@needs_library
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"FREESTONE_DISABLE": "1"}, "mine is switched off here: it passes each call on to glibc's malloc"),
        ({"FREESTONE_CONF": "nosuch:1"}, 'mine: FREESTONE_CONF: unknown option "nosuch"'),
        ({"FREESTONE_CONF": "dirty_decay_ms:5"}, None),
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["advise", "compare"])
def test_a_library_that_would_not_do_as_asked_is_refused(
    command: str, env: dict[str, str], said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    done = freestone(tmp_path, command, "--only", f"mine={LIBRARY}", "--runs", "1", "--", "true")
    assert done.returncode == (2 if said else 0) and (said or "") in done.stderr, done.stderr
    assert bool(said) != bool(files(tmp_path, "freestone-*"))


SPINS = "int main(void) { for (volatile long i = 0; i < 150000000; i++) {} return 0; }\n"
WALKS = """#include <stdlib.h>
struct node { struct node* next; long pad[7]; };
int main(void) {
  struct node *first = NULL, *last = NULL;
  for (long i = 0; i < 100000; i++) {
    struct node* made = malloc(sizeof *made);
    made->next = first, first = made;
    if (!last) last = made;
  }
  last->next = first;
  for (volatile long i = 0; i < 100000000; i++) first = first->next;
  return first == NULL;
}
"""


@pytest.mark.parametrize("words", [["./spins"], ["sleep", "2"]], ids=lambda words: words[0])
def test_nothing_is_measured_where_nothing_can_be_won(words: list[str], tmp_path: Path, only: list[str]) -> None:
    (tmp_path / "spins.c").write_text(SPINS)
    subprocess.run(["cc", str(tmp_path / "spins.c"), "-o", str(tmp_path / "spins")], check=True)
    done = freestone(tmp_path, "advise", *only, "--", *words)
    assert done.returncode == 0, done.stderr
    said = r"keep +glibc: malloc takes \S+ % of the CPU time, .*at most \S+ % of it and \S+ % of the time to win; "
    assert re.match(said + "where blocks lie in caches is not in it", done.stdout), done.stdout
    assert "measuring 1" not in done.stderr and "round 1" not in done.stderr
    assert not files(tmp_path, "freestone-advise-*")


@pytest.mark.all
def test_a_list_that_is_walked_is_measured_though_its_calls_take_nothing(tmp_path: Path, only: list[str]) -> None:
    """What its nodes' places do to caches can be won, and is in no bound of calls."""
    (tmp_path / "walk.c").write_text(WALKS)
    subprocess.run(["cc", str(tmp_path / "walk.c"), "-o", str(tmp_path / "walk")], check=True)
    done = freestone(tmp_path, "advise", *only, "--budget", "20s", "--", "./walk")
    assert done.returncode == 0 and "measuring 2 allocators" in done.stderr, done.stderr
    assert "where blocks lie in caches is not in it; " in card_of(done.stdout)["malloc"], done.stdout
