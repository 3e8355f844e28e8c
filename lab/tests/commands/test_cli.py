"""The commands as a user types them: results, exit statuses, one clear line for every wrong usage."""

import csv
import gzip
import importlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_tools import CLI, freestone, needs_library

from freestone_lab import cli
from freestone_lab.commands import options
from freestone_lab.core import paths
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.core.result_file import load, save

ROOT = paths.root()


def in_a_process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *words], cwd=folder, capture_output=True, text=True, timeout=1200)


@pytest.fixture(autouse=True, scope="module")
def plain_terminal() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        patch.setenv("FREESTONE_ROOT", str(ROOT))
        yield


@pytest.fixture(scope="module")
def preload(controls: dict[str, Peer]) -> str:
    return f"pass={controls['passthrough'].path}"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, work: Path, preload: str) -> tuple[Path, str]:
    """The folder and the output of one real comparison with every export."""
    folder = tmp_path_factory.mktemp("compared")
    exports = ["--json", "r.json", "--csv", "r.csv", "--markdown", "r.md", "-o", "r.html"]
    done = freestone(folder, "compare", "--only", preload, "--rounds", "8", *exports, "--", str(work), "2000", "64")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def test_compare_prints_table_proof_and_verdict(compared: tuple[Path, str]) -> None:
    _, out = compared
    assert re.search(r"\npass +\d", out)
    assert re.search(r"\nglibc again .* control", out)
    last = out.rpartition("written: ")[2]
    assert re.search(r"^(use |keep |not known yet: ).*\nprogram +answer ", last, re.MULTILINE), (
        "it ends with the answer"
    )
    assert re.search(r"pass: /\S+libcontrol-passthrough\.so.*proven", out)
    assert "noise floor" in out
    assert "\x1b" not in out


def test_compare_writes_a_result_that_can_be_read_back(compared: tuple[Path, str]) -> None:
    folder, _ = compared
    result = load(folder / "r.json")
    (experiment,) = result.experiments
    assert {s.peer for s in experiment.samples} == {"glibc", "glibc again", "pass"}
    assert {s.round for s in experiment.samples} == set(range(1, 9))
    assert result.fingerprint["kernel"] and result.fingerprint["libraries"]["pass"]
    assert result.fingerprint["programs"][0]["path"] == experiment.workload.split()[0]


def test_exports_hold_every_sample(compared: tuple[Path, str]) -> None:
    folder, _ = compared
    experiment = load(folder / "r.json").experiments[0]
    with (folder / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(s.figures) for s in experiment.samples)
    first = experiment.samples[0]
    shown = {float(r["value"]) for r in rows if r["peer"] == first.peer and r["round"] == "1"}
    assert shown == set(first.figures.values())
    text = (folder / "r.md").read_text()
    assert text.count("\n| ") >= 3 and "| pass |" in text
    assert "- 8 rounds, a fresh process each" in text
    assert re.search(r"^- noise floor \(the baseline against itself\): CPU time .*peak memory", text, re.MULTILINE)
    page = (folder / "r.html").read_text()
    assert "<html" in page and "pass" in page


def test_compare_shows_a_failing_allocator_in_its_row(tmp_path: Path, work: Path, controls: dict[str, Peer]) -> None:
    crashing = f"crash={controls['crashing'].path}"
    done = freestone(tmp_path, "compare", "--only", crashing, "--rounds", "2", "--", str(work))
    assert done.returncode == 1, "nothing compared is an exit status"
    assert re.search(r"\ncrash +failed", done.stdout)
    assert "crash: failed: killed by SIGABRT" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--", "freestone-no-such-program"], "program 'freestone-no-such-program' was not found on PATH"),
        (["--budget", "0s", "--", "true"], "--budget '0s': expected more than nothing"),
        (["--budget", "soon", "--", "true"], "--budget 'soon': expected a duration"),
        (["--budget", "", "--", "true"], "--budget '': expected a duration"),
        (["--precision", "", "--", "true"], "--precision '': expected a percentage above 0"),
        (["--precision", "0", "--", "true"], "--precision '0': expected a percentage above 0"),
        (["--rounds", "0", "--", "true"], "--rounds/--runs: '0': expected a whole number of at least 1"),
        (["--precision", "1000%", "--", "true"], "--precision '1000%': expected a percentage above 0 and up to 100"),
        (["--expect-exit", "300", "--", "true"], "--expect-exit: '300': expected a whole number from 0 to 255"),
        (["--seed", "-1", "--", "true"], "--seed: '-1': expected a whole number of at least 0"),
        (["--budget", "9" * 400, "--", "true"], "expected at most ten years"),
        (["--output-file", "/", "--", "true"], "--output-file '/': it is a folder"),
        (["--with", "", "--", "true"], "'': expected names of allocators or NAME=path.so"),
        (["--only", "nosuch", "--", "true"], "no allocator is named 'nosuch'"),
        (["--with", "x=/nowhere/x.so", "--", "true"], "/nowhere/x.so"),
        (["--with", "x=/etc/passwd", "--", "true"], "/etc/passwd"),
        (["--stdin", "/nowhere/in", "--", "true"], "--stdin '/nowhere/in': no such file"),
        (["--stdin", "/etc", "--", "true"], "--stdin '/etc': it is a folder; expected a file"),
        (["--", "false"], "'false' fails under glibc: exit status 1"),
    ],
)
def test_wrong_usage_of_compare_gets_one_clear_line(tmp_path: Path, words: list[str], expected: str) -> None:
    done = freestone(tmp_path, "compare", "--quick", "--only", "glibc", *words)
    lines = [line for line in done.stderr.splitlines() if line.startswith("freestone: ")]
    assert done.returncode == 2
    assert expected in lines[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_deleted_folder_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.run(["compare", "--", "true"]) == 2
    assert "the current folder was deleted; expected to be called from one that exists" in capsys.readouterr().err


def test_compare_refuses_a_static_program(tmp_path: Path, static_program: Path) -> None:
    done = freestone(tmp_path, "compare", "--", str(static_program))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "statically linked" in done.stderr


def result(
    path: Path, factor: float, noise: float = 0.002, status: str = "ok", apart: float = 0.0, rounds: int = 12
) -> Path:
    """A stored result in which `peer` takes `factor` times glibc's time; glibc's two runs are `apart` at times."""
    samples = []
    for round_ in range(1, rounds + 1):
        wobble = 1 + noise * ((round_ * 7 % 5) - 2)
        for name, wall in (("glibc", 1.0), ("glibc again", 1.0), ("peer", factor)):
            bad = status != "ok" and name == "peer"
            wall *= 1 + apart * (round_ % 2) if name == "glibc again" else 1.0
            figures = {} if bad else {"wall": wall * wobble, "rss": 1000.0, "rate": 1 / (wall * wobble)}
            samples.append(Sample(name, round_, status if bad else "ok", "reason", figures))  # type: ignore[arg-type]
    specs = {"wall": FigureSpec("s", "lower", "time"), "rss": FigureSpec("KiB"), "rate": FigureSpec("1/s", "higher")}
    peers = [Peer("glibc", None, "libc"), Peer("peer", "/p.so")]
    save(Result("", [], 0, {}, peers, [Experiment("e", "w", specs=specs, samples=samples)]), path)
    return path


def test_diff_passes_and_fails_by_its_gates(tmp_path: Path) -> None:
    a, b = result(tmp_path / "a.json", 1.0), result(tmp_path / "b.json.gz", 1.1)
    assert gzip.decompress(b.read_bytes()).startswith(b"{")
    cases = [
        (a, a, "time>3%", 0), (a, b, "time>3%", 1), (a, b, "time>20%", 0), (a, b, "memory>1%", 0), (b, a, "time>3%", 0),
        (a, b, "rate>3%", 1),
    ]  # fmt: skip
    for before, after, gate, status in cases:
        done = freestone(tmp_path, "diff", str(before), str(after), "--fail-if", gate)
        assert done.returncode == status, (gate, done.stdout + done.stderr)
        assert ("fails time>3%: e, peer: +10.0 %" in done.stdout) == ((after, gate) == (b, "time>3%"))


def test_diff_says_what_it_compares_and_a_program_that_grew_fails_by_plain_values(tmp_path: Path) -> None:
    a, b = result(tmp_path / "a.json", 1.0), load(tmp_path / "a.json")
    for sample in b.experiments[0].samples:
        sample.figures["rss"] *= 1.1
    save(b, tmp_path / "b.json")
    words = ["diff", str(a), "b.json", "--peer", "peer", "--fail-if", "memory>5%"]
    plain, absolute = freestone(tmp_path, *words), freestone(tmp_path, *words, "--absolute")
    assert (plain.returncode, absolute.returncode) == (0, 1)
    assert "compared: each allocator's ratio to glibc" in plain.stdout and "--absolute" in plain.stdout
    assert "compared: plain values" in absolute.stdout


@pytest.mark.parametrize("words", ["report {}", "stats {}", "peers --with x=."])
@pytest.mark.parametrize("deep", ["[", '{"a":'])
def test_what_is_nested_without_end_is_one_clear_error(words: str, deep: str, tmp_path: Path) -> None:
    (tmp_path / "peer.json").write_text(deep * 100_000)
    done = freestone(tmp_path, *words.format("peer.json").split())
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "peer.json" in done.stderr


@pytest.mark.parametrize(
    ("rounds", "noise", "why"), [(1, 0.002, "1 values"), (4, 0.002, "4 values"), (12, 0.1, "noise")]
)
def test_a_gate_that_cannot_judge_fails_with_its_own_status(
    rounds: int, noise: float, why: str, tmp_path: Path
) -> None:
    a, b = (result(tmp_path / f"{name}.json", cost, noise, rounds=rounds) for name, cost in (("a", 1.0), ("b", 1.02)))
    done = freestone(tmp_path, "diff", str(a), str(b), "--absolute", "--fail-if", "time>3%")
    assert done.returncode == 3, done.stdout
    assert re.search(f"cannot judge time>3%: e, (glibc|peer): .*{why}", done.stdout)
    assert freestone(tmp_path, "diff", str(a), str(b), "--absolute").returncode == 0, "without a gate nothing fails"


def test_diff_claims_nothing_below_the_noise_floor_of_either_sitting(tmp_path: Path) -> None:
    a, noisy = result(tmp_path / "a.json", 1.0), result(tmp_path / "b.json", 1.1, apart=0.2)
    for pair in ((a, noisy), (noisy, result(tmp_path / "c.json", 1.25))):
        done = freestone(tmp_path, "diff", *map(str, pair), "--fail-if", "time>3%")
        assert done.returncode == 0, done.stdout
        assert re.search(r"peer +time +\+1\d\.\d % .* inconclusive", done.stdout)


def test_diff_fails_when_an_allocator_breaks(tmp_path: Path) -> None:
    a, b = result(tmp_path / "a.json", 1.0), result(tmp_path / "b.json", 1.0, status="failed")
    done = freestone(tmp_path, "diff", str(a), str(b), "--fail-if", "time>3%")
    assert done.returncode == 1
    assert "it ran well in the first result" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("diff a a --fail-if time<3%", "expected FIGURE>N%"),
        ("diff a a --fail-if speed>3%", "expected a figure of both results: memory, rate, time"),
        ("diff a a --fail-if tme>3%", "--fail-if 'tme>3%': did you mean 'time'? expected a figure of both"),
        ("diff a a --peer nosuch", "--peer 'nosuch': expected an allocator of both results: glibc, peer"),
        ("diff x y", "x: schema is None, expected"),
        ("report a -o /proc/none/r.html", "'/proc/none"),
        ("report /nowhere/r.json", "/nowhere/r.json: cannot be read as a result file: No such file or directory"),
    ],
)
def test_wrong_usage_of_result_files_is_one_line(tmp_path: Path, words: str, expected: str) -> None:
    result(tmp_path / "a", 1.0)
    (tmp_path / "x").write_text("{}")
    done = freestone(tmp_path, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("freestone: ") and done.stderr.count("\n") == 1 and expected in done.stderr


def test_doctor_names_its_findings_and_sums_them_up(tmp_path: Path) -> None:
    done = freestone(tmp_path, "doctor")
    for name in ("cores", "governor", "steal", "load", "memory", "huge pages", "noise"):
        assert re.search(rf"^(ok|warn|bad) +{name}: \S", done.stdout, re.MULTILINE), name
    assert done.returncode == (1 if re.search(r"^bad ", done.stdout, re.MULTILINE) else 0)


def test_the_help_lists_every_command_once() -> None:
    listed = re.findall(r"^  ([a-z]+)  +\S", options.HELP.read_text(), re.MULTILINE)
    first_words = {name.split()[0] for name in options.COMMANDS}
    assert sorted(listed) == sorted([*first_words, "build", "install", "uninstall"])


@pytest.mark.parametrize("name", options.COMMANDS)
def test_every_command_has_a_module_and_a_function(name: str) -> None:
    command = options.COMMANDS[name]
    assert callable(getattr(importlib.import_module(f"freestone_lab.commands.{command.module}"), command.function))


@pytest.mark.parametrize("name", ["compare", "run", "bench", "diff", "profile", "leaks", "top", "stats"])
def test_help_has_examples(tmp_path: Path, name: str) -> None:
    done = freestone(tmp_path, name, "--help")
    assert done.returncode == 0
    assert re.search(r"Examples?:", done.stdout) and f"    freestone {name}" in done.stdout


@needs_library
def test_run_becomes_the_program(tmp_path: Path, work: Path) -> None:
    code = "import os,sys; print('libfreestone' in open('/proc/self/maps').read(), sys.argv[1:]); sys.exit(7)"
    done = in_a_process(tmp_path, "run", "--", "/usr/bin/python3", "-c", code, "--stats", "x")
    assert (done.returncode, done.stdout, done.stderr) == (7, "True ['--stats', 'x']\n", "")


@needs_library
def test_run_hands_a_signal_through(tmp_path: Path) -> None:
    done = in_a_process(tmp_path, "run", "--", "/bin/sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM


@needs_library
def test_lib_prints_the_path_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run([str(ROOT / "freestone"), "lib"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{ROOT}/build/release/libfreestone.so\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lib", "--soft"], "lib: unknown argument '--soft'"),
        (["lib", "--hardened", "more"], "lib: unknown argument 'more'"),
        (["build", "--preset", "nosuch"], "build: no preset 'nosuch'"),
        (["build", "--nosuch"], "build: unknown option '--nosuch'"),
    ],
)
def test_wrong_usage_of_the_root_command_is_one_line(words: list[str], expected: str) -> None:
    done = subprocess.run([str(ROOT / "freestone"), *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert expected in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_the_root_command_is_plain_sh() -> None:
    assert (ROOT / "freestone").read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", str(ROOT / "freestone")], check=True)


TRACE = ROOT / "trace/corpus/vim.fst"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_standard_files_are_closed_does_its_work(tmp_path: Path, closed: str) -> None:
    words = ["trace", "cut", str(TRACE), "-o", "cut.fst"]
    shell = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *CLI, *words]
    done = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert freestone(tmp_path, "trace", "check", "cut.fst").returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bench", "--resume", "here", "traces"], "--resume 'here': expected --cluster"),
        (["bench", "--cluster", "here", "--part", "1/2"], "no --part, no --aged"),
        (["replay", str(TRACE), "--pace", "nan"], "--pace nan: expected 0, as fast as possible, or 0.001 to 1000"),
        (["replay", str(TRACE), "--pace", "1e-300"], "--pace 1e-300: expected 0"),
        (["record", "--max-bytes", "9" * 400, "--", "true"], "expected less than 8589934592g"),
        (["record", "--max-bytes", "", "--", "true"], "--max-bytes '': expected a size"),
        (["record", "--for", "", "--", "true"], "--for '': expected a duration"),
        (["replay", str(TRACE), "--pace", "fast"], "--pace: 'fast': expected a number such as 1.0"),
        (["trace", "anonymise", str(TRACE), "-o", "o", "--round-sizes", "9" * 30], "expected a whole number from 1 to"),
        (["trace", "stats", str(TRACE), "-o", "/proc/none/o"], "--output '/proc/none/o': cannot be written"),
        (["trace", "corpus", "nosuch"], "'nosuch': expected a program of the corpus: "),
        (["profile", "--sample-bytes", "9" * 30, "--", "true"], "expected a whole number from 1 to 1099511627776"),
        (["profile", "--keep", "/dev/null", "--", "true"], "--keep '/dev/null': expected a folder"),
        (["leaks", "--error", "999", "--", "true"], "--error: '999': expected a whole number from 0 to 255"),
        (["agent", "--listen", "127.0.0.1:99999"], "--listen '127.0.0.1:99999': expected ADDRESS:PORT"),
        (["agent", "--every", "0", "--once"], "--every '0': expected more than nothing"),
        (["agent", "--push", "nonsense", "--once"], "--push 'nonsense': expected the http:// or https:// address"),
        (["advise", "--server", "x", "--ready", "-1", "--load", "true"], "--ready '-1': expected a port"),
        (["package", "/dev/null"], "FOLDER '/dev/null': expected a folder"),
        (["test", "--programs", "nosuch"], "unknown program 'nosuch'; expected one of "),
        (["run", "--", "freestone-no-such-program"], "was not found on PATH"),
        (["run", "--", "/bin/su"], "set-uid"),
        (["run", "--"], "no program given"),
        (["run", "--", "./class-0"], "is not a program that can be read: its class is 0"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_wrong_value_is_named_with_what_was_expected(tmp_path: Path, words: list[str], expected: str) -> None:
    odd = tmp_path / "class-0"
    odd.write_bytes(b"\x7fELF" + bytes(100))
    odd.chmod(0o755)
    done = freestone(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and expected in done.stderr, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", ["--help", "diff a.json a.json", "doctor", "peers", "compare --rounds 1 -- true"])
@pytest.mark.parametrize("closed", [(1,), (1, 2)])
def test_a_reader_that_ends_early_ends_the_command_quietly(words: str, closed: tuple[int, ...], tmp_path: Path) -> None:
    result(tmp_path / "a.json", 1.0)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        out, err = [writing if number in closed else subprocess.PIPE for number in (1, 2)]
        done = subprocess.run([*CLI, *words.split()], stdout=out, stderr=err, cwd=tmp_path, text=True)
    finally:
        os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in (done.stderr or "")


@pytest.mark.parametrize(
    ("env", "said"),
    [({"PYTHONIOENCODING": "ascii"}, "..."), ({"LC_ALL": "C"}, "…"), ({"PYTHONUTF8": "0", "LC_ALL": "POSIX"}, "...")],
)
def test_a_terminal_without_a_character_gets_a_plain_one(env: dict[str, str], said: str, tmp_path: Path) -> None:
    result(tmp_path / "a.json", 1.0)
    command = [*CLI, "diff", "a.json", "a.json"]
    done = subprocess.run(command, env={**os.environ, **env}, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert f" {said} ".encode() in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        "trace info nosuch", "trace info odd", "trace stats nosuch", "replay nosuch", "replay odd", "record -- nosuch",
        "record --pid 999999999", "record --with nosuch -- true", "run -- nosuch", "profile -- nosuch",
        "leaks -- nosuch", "compare -- nosuch", "advise -- nosuch", "advise --trace nosuch",
        "compare --with nosuch -- true", "advise --only nosuch -- true", "bench --with nosuch",
    ],
)  # fmt: skip
def test_what_cannot_be_read_or_started_is_said_before_anything_is_built(words: str, tmp_path: Path) -> None:
    """In a tree without a build, whose build command is missing, too."""
    (tmp_path / "odd").write_text("nosuch")
    done = freestone(tmp_path, *words.split(), FREESTONE_ROOT=str(tmp_path))
    assert done.returncode == 2
    assert re.fullmatch(r"freestone: .*(nosuch|odd: at byte 0: no trace|999999999: no such process).*\n", done.stderr)


def test_a_run_that_hangs_is_ended_by_the_limit_that_was_given(tmp_path: Path) -> None:
    words = ["compare", "--only", "glibc", "--budget", "6s", "--", "sleep", "60"]
    assert "one run takes longer than --budget 6s: after " in freestone(tmp_path, *words).stderr
