"""The tables that stored results give: the worst stands out, and what failed or was not judged is named."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, Peer, Result, Sample
from freestone_lab.docs import tables
from freestone_lab.host import real_programs
from freestone_lab.workloads import apps, suites

PEERS = ("glibc", "glibc again", tables.FAST, tables.HARDENED)


def flat(text: str) -> str:
    return " ".join(text.split())


def experiment(name: str, hardened: float, failing: str = "") -> Experiment:
    """Eight rounds that drift by a tenth a round; `failing` names a peer whose fifth run ends badly."""
    found = Experiment(f"app/{name}", name)
    for turn in range(1, 9):
        for peer in PEERS:
            factor = hardened if peer == tables.HARDENED else 1.0
            figures = {"cpu": factor * (1 + turn / 10), "rss": 1000.0 * factor}
            bad = peer == failing and turn == 5
            sample = Sample(peer, turn, "ok", figures=figures)
            found.samples.append(Sample(peer, turn, "failed", "killed by SIGABRT") if bad else sample)
    return found


def costs(*experiments: Experiment) -> dict[str, list[str]]:
    peers = [Peer(name, None) for name in PEERS]
    made = tables.program_costs(Result("", ["freestone", "bench", "costs"], 1, {}, peers, list(experiments)))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in made.splitlines() if line[:2] == "| "]
    return {row[0]: row[1:] for row in cells[1:]}


def test_of_program_costs_the_worst_comes_first_and_the_mean_last() -> None:
    found = costs(experiment("bash", 1.21), experiment("git", 1.69), experiment("jq", 1.0))
    measured = [name for name in found if found[name][0] != "not measured"]
    assert measured == ["git", "bash", "jq", "geometric mean"]
    assert found["git"] == ["1.69", "1.68 to 1.70", "1.00", "1.00", "1.69", "1.00"]
    assert found["geometric mean"] == ["1.27", "", "1.00", "1.00", "1.27", "1.00"]
    assert set(suites.COSTS) <= found.keys() and found["emacs"][0] == "not measured"


def test_a_failure_stands_above_all_costs_and_in_no_mean() -> None:
    found = costs(experiment("git", 1.5), experiment("bash", 1.1, tables.HARDENED))
    assert found["bash"][0] == "failed: killed by SIGABRT"
    assert list(found).index("bash") < list(found).index("git")
    assert found["geometric mean"][0] == "1.50"
    assert found["geometric mean"][2] == "1.00"


def test_the_suite_of_costs_has_the_promised_programs() -> None:
    assert {"python", "r", "emacs", "ruby", "make", "git", "pandas"} <= set(suites.COSTS)
    assert len(suites.COSTS) == len(set(suites.COSTS)) >= 20
    assert set(suites.COSTS) <= {app.name for app in apps.APPS}


def test_memory_calls_show_what_the_check_adds() -> None:
    result = Result("", [], 0, {}, [Peer("glibc", None), Peer(tables.HARDENED, "lib.so")])
    for place, added in (("heap", 60), ("static", 18)):
        for size in (8, 1 << 20):
            figures = {"glibc": size + 10.0, tables.HARDENED: size + 10.0 + added}
            samples = [Sample(name, 0, "ok", figures={"instructions": figure}) for name, figure in figures.items()]
            result.experiments.append(Experiment("", "", {"bytes": size, "place": place}, samples=samples))
    table = tables.memory_calls(result)
    assert "| 8 | 18 | +60 | +18 |\n| 1,048,576 | 1,048,586 | +60 | +18 |" in table


def test_known_costs_show_the_worst_coverage_and_the_rates_of_each_noise() -> None:
    coverage = [
        ("paired", "normal", 100, 99), ("paired", "drift", 50, 48), ("over workloads", "normal", 0, 0),
        ("over workloads", "normal", 100, 97), ("paired", "drift", 100, 97), ("paired", tables.STAYING, 100, 90),
    ]  # fmt: skip
    judgements = [
        ("nothing", "normal", "compare", 10, {"right": 9, "open": 1}, {"right": 10}, 12.0),
        ("+1 % CPU", "normal", "compare", 30, {"right": 29, "wrong": 1}, {"open": 3, "right": 27}, 20.0),
        ("nothing", "a real program", "both", 4, {"open": 4}, {"right": 4}, 40.0),
    ]
    names = ("cost", "shape", "command", "of", "verdicts", "answers", "rounds")
    result = {
        "created": "2026-11-27T03:00:00", "machine": "here", "load": 1.1,
        "coverage": [dict(zip(("kind", "shape", "printed", "held"), one, strict=True)) for one in coverage],
        "judgements": [dict(zip(names, one, strict=True)) for one in judgements],
    }  # fmt: skip
    text = tables.known_costs(result)
    assert "in paired 96.7 % (96.0 %), over workloads 97.0 % (97.0 %) of the intervals" in flat(text)
    assert "it lies in paired 90.0 % (90.0 %): no interval allows for that." in flat(text)
    assert "| compare: normal | 40 | 2.5 % | 2.5 % | 0.0 % | 7.5 % | 18 |" in text
    assert "| both: a real program | 4 | 0.0 % | 100.0 % | 0.0 % | 0.0 % | 40 |" in text


def test_an_axis_of_torture_that_does_not_pass_has_a_row() -> None:
    def row(axis: str, build: str, outcome: str = "passed", **refused: int) -> dict[str, Any]:
        return {"axis": axis, "build": build, "outcome": outcome, "seconds": 1.5, "refused": refused}

    rows = [
        row("peace", "fast"), row("peace", "hardened"), row("munmap", "fast", munmap=3, mremap=4),
        row("munmap", "hardened", "ended by SIGSEGV; a|b", munmap=1), row("lseek", "fast"),
        row("mremap", "fast", mremap=3), row("mremap", "hardened", mremap=4), row("seal_bytes:0", "hardened"),
    ]  # fmt: skip
    text = tables.torture({"rows": rows, "seconds": 9, "seed": 255, "machine": "here", "not_met": ["lseek"]})
    rows_of = [line for line in text.splitlines() if line.startswith("| `")]
    assert rows_of == ["| `munmap` | passed | ended by SIGSEGV | 7 / 1 |", "| `lseek` | passed |  | not met |"]
    assert "hardened library: `peace`, `mremap` (3 / 4), `seal_bytes:0`." in flat(text)
    assert "7 of 8 runs passed, in 9 seconds" in text and "seed 0xff" in text


def report(names: list[str]) -> ElementTree.Element:
    case = '<testcase name="{}"><properties><property name="cost" value="1.250 0.900 1.100"/></properties></testcase>'
    cases = "".join(case.format(name) for name in names)
    return ElementTree.fromstring(
        f'<testsuites><testsuite><testcase name="test_another"/>{cases}</testsuite></testsuites>'
    )


def test_each_recorded_program_has_its_middle_and_its_extremes() -> None:
    lines = tables.recording(report(list(tables.TIMED))).splitlines()[2:]
    assert [line.split(" | ", 1)[1] for line in lines] == ["1.10 | 0.90 to 1.25 | 3 |"] * 3
    with pytest.raises(UserError, match=r"expected the property 'cost' of test_a_server_hardly_notices\[redis\]"):
        tables.recording(report(list(tables.TIMED)[1:]))


def test_the_cost_of_recording_as_a_whole_is_the_range_of_medians() -> None:
    """The page said one range, and its table gave another."""
    rows = [
        {"name": "slow", "alone": [1.0, 1.0, 2.0], "recorded": [2.5, 3.0, 5.0]},
        {"name": "fast", "alone": [1.0, 1.0, 1.0], "recorded": [1.4, 1.6, 1.5]},
    ]
    about = {"created": "2026-11-23T", "machine": "here", "load": 1.0, "rounds": 3}
    text = tables.recording_whole({**about, "programs": rows})
    assert "is 1.5 to 2.5 times the program's, medians of 3 rounds" in flat(text)
    assert "| slow | 1.00 | 3.00 | 2.50 | 2.50 to 3.00 |" in text


FIGURES = {
    "cpu_s": {"none": 2.0, "fast": 1.0, "hardened": 3.0},
    "peak_kib": {"none": 2048, "fast": 2048, "hardened": 4096},
}
HERE = {"machine": "here", "processors": 4, "busy_beside": 0.02}


def program(name: str, verdict: str = "same", detail: str = "", **more: object) -> dict[str, object]:
    return {"program": name, "package": name, "verdict": verdict, "detail": detail, **FIGURES, **more}


def test_every_program_is_in_the_table_or_named_below_it() -> None:
    rows = [
        program("sort"), program("firefox", own_malloc=True), program("php", "fails", "fast: crash"),
        program("go", "skipped", "not on this machine: gofmt"),
    ]  # fmt: skip
    text = tables.programs({**HERE, "programs": rows})
    assert text.startswith("2 of 3 programs")
    assert "| sort | same | 2.00 | 0.50 | 1.50 | 2 | 1.00 | 2.00 |" in text
    assert "| php | **fails** |" in text
    assert "Not judged: go (not on this machine: gofmt)." in text
    own = "Served by a malloc of their own, with the library loaded into each of their processes: firefox."
    assert own in flat(text)


@pytest.mark.parametrize(("busy", "said"), [(0.04, False), (1.26, True)])
@pytest.mark.parametrize("make", [tables.programs, tables.program_suites])
def test_a_measurement_beside_other_work_says_so(make: Any, busy: float, said: bool) -> None:
    rows = [program("sort", tests=1, processes=1, left_out={})]
    text = flat(make({**HERE, "busy_beside": busy, "programs": rows}))
    assert ("Other work kept 1.3 of 4 processors busy meanwhile." in text) == said


def test_a_suite_shows_its_tests_and_what_was_left_out() -> None:
    shown: dict[str, Any] = {"tests": 12, "processes": 3}
    rows = [
        program("glibc", **shown, left_out={"tst-x": "an inner part"}),
        program("git", "differs", "fast: -t1: ok", **shown, left_out={}),
    ]
    text = tables.program_suites({**HERE, "programs": rows})
    assert "of 2 programs" in text and "1 suites say the same" in flat(text)
    assert "| glibc | same | 12 | 3 | 2.00 | 0.50 | 1.50 | 2 | 1.00 | 2.00 |" in text
    assert "Left out of glibc's: an inner part: tst-x." in text
    assert "git: `fast: -t1: ok`" in text


def test_a_root_names_what_went_wrong_and_what_was_not_judged() -> None:
    def root(name: str, glibc: str, fork: str, **outcomes: str) -> dict[str, object]:
        tests = {"stress.fork.fast": "passed", "stress.fork.hardened": fork}
        linked = {"redis-tools": "redis", "blender": ""}
        return {"name": name, "glibc": glibc, "programs": outcomes, "linked": linked, "tests": tests}

    old = root("Debian 11", "2.31", "passed", git="same", jq="skipped")
    text = tables.roots({"machine": "here", "roots": [old, root("sid", "2.43", "failed", git="differs")]})
    assert "the programs git, jq, and under both the tests stress.fork." in flat(text)
    assert "| Debian 11 | 2.31 | 1 | 2 | 1 of 2 | none | jq |" in text
    assert "| sid | 2.43 | 0 | 1 | 1 of 2 | **git differs**, **stress.fork.hardened failed** | none |" in text
    assert "Not run: blender." in text


def test_names_choose_programs_suites_or_one_suite() -> None:
    every, suite = (real_programs.RESULT, "programs"), (real_programs.SUITES, "suites")
    roots = (real_programs.ROOTS, "roots")
    assert real_programs.runs([]) == [(*every, []), (*suite, []), (*roots, [])]
    assert real_programs.runs(["roots/sid"]) == [(*roots, ["sid"])]
    assert real_programs.runs(["suites"]) == [(*suite, [])]
    assert real_programs.runs(["sort", "suites/git"]) == [(*every, ["sort"]), (*suite, ["git"])]
    assert {"php-cli", "php-curl", "php-intl", "php-mysql"} <= set(real_programs.packages()), "extensions come with php"
    assert real_programs.packages(["roots/sid", "roots"]) == ["mmdebstrap"]
