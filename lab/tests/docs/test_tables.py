"""The tables that stored results give: the worst stands out, and what failed or was not judged is named."""

from typing import Any
from xml.etree import ElementTree

import pytest

from freestone_lab.core.errors import UserError
from freestone_lab.docs import tables
from freestone_lab.host import real_programs


def flat(text: str) -> str:
    return " ".join(text.split())


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
