"""Results of two labs become one only where both measured the same; otherwise the error says what differs."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import synthetic
from command_tools import freestone

from freestone_lab.analysis.claims import table_of
from freestone_lab.analysis.joining import joined
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import FigureSpec, Result
from freestone_lab.core.result_file import load, save

MADE_OF = {
    "argv": ["/here/python3", "parse.py", "--input", "measurements.json"],
    "program": {"path": "/here/python3", "sha256": "ab" * 32, "version": "python3 3.11"},
    "inputs": {"/here/measurements.json": "cd" * 32},
}


def result(number: int, rounds: int = 8) -> Result:
    """A sitting of its own: another time, another seed, another noise."""
    made = synthetic.program(rounds=rounds)
    made = dataclasses.replace(made, created=f"2026-11-2{number}T12:00:00Z", seed=number)
    made.fingerprint = {**synthetic.FINGERPRINT, "lab": "0.1.0", "libraries": {"freestone": "ef" * 32}}
    made.experiments[0].made_of = copy.deepcopy(MADE_OF)
    names = list(dict.fromkeys(s.peer for s in made.experiments[0].samples))
    figures = {name: (100.0, spec) for name, spec in made.experiments[0].specs.items()}
    made.experiments[0].samples = synthetic.samples(names, rounds, figures, number)
    return made


def test_the_rounds_of_both_count_and_say_more() -> None:
    one, other = result(1), result(2, rounds=12)
    both = joined([one, other])
    rounds = {s.round for s in both.experiments[0].samples if s.peer == "freestone" and s.round > 0}
    assert rounds == set(range(1, 21))
    widths = []
    for each in (one, both):
        row = table_of(each.experiments[0], "glibc").row("freestone")
        assert row is not None and row.runs == len({s.round for s in each.experiments[0].samples if s.round > 0})
        found = row.cells["cpu"].estimate
        assert found is not None and found.low < 0.71 < found.high
        widths.append(found.half_width)
    assert widths[1] < widths[0] / 1.5
    assert [sitting["seed"] for sitting in both.fingerprint["joined"]] == [1, 2]
    assert len(one.experiments[0].samples) < len(both.experiments[0].samples), "the first result is left as it was"


def _peer(r: Result, name: str, **other: object) -> None:
    r.peers = [dataclasses.replace(p, **other) if p.name == name else p for p in r.peers]  # type: ignore[arg-type]


def _made_of(r: Result, key: str, **other: object) -> None:
    r.experiments[0].made_of[key] |= other


MISMATCHES: dict[str, Callable[[Result], object]] = {
    "another freestone": lambda r: r.fingerprint.update(libraries={"freestone": "00" * 32}),
    "another jemalloc: 1.2.3 and 9.9": lambda r: _peer(r, "jemalloc", version="9.9"),
    "other settings of mimalloc": lambda r: _peer(r, "mimalloc", env=(("A", "1"),)),
    "measured by one of them only: gperftools": lambda r: setattr(r, "peers", r.peers[:4] + r.peers[5:]),
    "program: another program: python3 3.11 and python3 3.13": lambda r: _made_of(
        r, "program", sha256="11" * 32, version="python3 3.13"
    ),
    "program: other content of measurements.json": lambda r: _made_of(
        r, "inputs", **{"/here/measurements.json": "22" * 32}
    ),
    "program: other inputs": lambda r: _made_of(r, "inputs", **{"/there/more.json": "33" * 32}),
    "program: another command line": lambda r: r.experiments[0].made_of["argv"].append("--quick"),
    "program: other figures": lambda r: r.experiments[0].specs.update(wall=FigureSpec("ms")),
    "a file does not say what it was made of": lambda r: r.experiments[0].made_of.clear(),
    "the mode of huge pages: 'madvise' and 'always'": lambda r: r.fingerprint.update(thp="always"),
    "the lab's version": lambda r: r.fingerprint.update(lab="9"),
    "libc: 'glibc 2.36' and 'musl'": lambda r: r.fingerprint.update(libc="musl"),
    "the baseline: glibc and jemalloc": lambda r: setattr(r, "baseline", "jemalloc"),
}


@pytest.mark.parametrize("said", MISMATCHES)
def test_what_is_not_the_same_is_named(said: str) -> None:
    other = result(2)
    MISMATCHES[said](other)
    with pytest.raises(UserError, match="cannot be joined") as error:
        joined([result(1), other])
    assert said in str(error.value) and "\n" not in str(error.value)


def test_one_sitting_twice_is_refused() -> None:
    with pytest.raises(UserError, match="one sitting twice"):
        joined([result(1), result(1)])


def test_folders_and_machines_may_differ_and_machines_are_named() -> None:
    there = result(2)
    there.fingerprint = {**there.fingerprint, "kernel": "6.12.0-there"}
    there.experiments[0].made_of["argv"][0] = "/there/python3"
    there.experiments[0].made_of["inputs"] = {"/there/measurements.json": "cd" * 32}
    caveats = joined([result(1), there]).experiments[0].caveats
    assert any("rounds of 2 machines" in text and "6.12.0-there" in text for text in caveats)


def test_an_experiment_of_one_file_is_taken_over() -> None:
    more = result(2)
    more.experiments[0] = dataclasses.replace(more.experiments[0], id="another")
    assert [e.id for e in joined([result(1), more]).experiments] == ["program", "another"]


def test_the_command_writes_a_result_that_reads_like_any_other(tmp_path: Path) -> None:
    for number in (1, 2):
        save(result(number), tmp_path / f"{number}.json")
    done = freestone(tmp_path, "join", "1.json", "2.json", "-o", "both.json.gz")
    assert done.returncode == 0 and "written: " in done.stdout, done.stderr
    both = load(tmp_path / "both.json.gz")
    assert both.claims and {c.pairs for c in both.claims} == {16}
    lone = freestone(tmp_path, "join", "1.json")
    assert lone.returncode == 2 and "two result files or more" in lone.stderr
