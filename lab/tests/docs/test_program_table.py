"""The table of real programs: differences stand out, what was not judged is named."""

from __future__ import annotations

from pathlib import Path

from freestone_lab.docs import program_table
from freestone_lab.host import real_programs

ROOT = Path(__file__).resolve().parents[3]
FIGURES = {
    "cpu_s": {"none": 2.0, "fast": 1.0, "hardened": 3.0},
    "peak_kib": {"none": 2048, "fast": 2048, "hardened": 4096},
}


HERE = {"machine": "here", "processors": 4, "busy_beside": 0.02}


def row(name: str, verdict: str, detail: str = "") -> dict[str, object]:
    return {"program": name, "package": name, "verdict": verdict, "detail": detail, **FIGURES}


def test_phps_extensions_are_installed_with_it() -> None:
    assert {"php-cli", "php-curl", "php-intl", "php-mysql"} <= set(real_programs.packages())
    assert real_programs.packages(["roots/sid", "roots"]) == ["mmdebstrap"]


def test_every_program_is_in_the_table_or_named_below_it() -> None:
    rows = [row("sort", "same"), row("php", "fails", "fast: crash"), row("go", "skipped", "not on this machine: gofmt")]
    text = program_table.table({**HERE, "programs": rows})
    assert text.startswith("1 of 2 programs")
    assert "| sort | same | 2.00 | 0.50 | 1.50 | 2 | 1.00 | 2.00 |" in text
    assert "| php | **fails** |" in text
    assert "Not judged: go (not on this machine: gofmt)." in text


def test_who_brings_a_malloc_of_its_own_is_named() -> None:
    rows = [row("sort", "same"), {**row("firefox", "same"), "own_malloc": True}]
    text = " ".join(program_table.table({**HERE, "programs": rows}).split())
    assert "Served by a malloc of their own, with the library loaded into each of their processes: firefox." in text


def test_a_measurement_beside_other_work_says_so() -> None:
    programs = [{**row("sort", "same"), "tests": 1, "processes": 1, "left_out": {}}]
    results = [{**HERE, "busy_beside": busy, "programs": programs} for busy in (0.04, 1.26)]
    texts = [make(result) for make in (program_table.table, program_table.suites) for result in results]
    said = [" ".join(text.split()).find("Other work kept 1.3 of 4 processors busy meanwhile.") >= 0 for text in texts]
    assert said == [False, True, False, True]


def test_a_suite_shows_its_tests_and_what_was_left_out() -> None:
    shown = {"tests": 12, "processes": 3, "left_out": {"tst-x": "an inner part"}}
    rows = [{**row("glibc", "same"), **shown}, {**row("git", "differs", "fast: -t1: ok"), **shown, "left_out": {}}]
    text = program_table.suites({**HERE, "programs": rows})
    assert "of 2 programs" in text
    assert "in 1 of them" in text
    assert "| glibc | same | 12 | 3 | 2.00 | 0.50 | 1.50 | 2 | 1.00 | 2.00 |" in text
    assert "Left out of glibc's: tst-x: an inner part." in text
    assert "git: `fast: -t1: ok`" in text


def test_a_root_names_what_went_wrong_and_what_was_not_judged() -> None:
    def root(name: str, glibc: str, fork: str, **outcomes: str) -> dict[str, object]:
        tests = {"stress.fork.fast": "passed", "stress.fork.hardened": fork}
        linked = {"redis-tools": "redis", "blender": ""}
        return {"name": name, "glibc": glibc, "programs": outcomes, "linked": linked, "tests": tests}

    old, new = (
        root("Debian 11", "2.31", "passed", git="same", jq="skipped"),
        root("sid", "2.43", "failed", git="differs"),
    )
    text = program_table.roots({"machine": "here", "roots": [old, new]})
    assert "the programs git, jq, and under both the tests stress.fork." in " ".join(text.split())
    assert "| Debian 11 | 2.31 | 1 | 2 | 1 of 2 | none | jq |" in text
    assert "| sid | 2.43 | 0 | 1 | 1 of 2 | **git differs**, **stress.fork.hardened failed** | none |" in text
    assert "Not run: blender." in text


def test_names_choose_programs_suites_or_one_suite() -> None:
    programs, suites = (real_programs.RESULT, "programs"), (real_programs.SUITES, "suites")
    roots = (real_programs.ROOTS, "roots")
    assert real_programs.runs([]) == [(*programs, []), (*suites, []), (*roots, [])]
    assert real_programs.runs(["roots/sid"]) == [(*roots, ["sid"])]
    assert real_programs.runs(["suites"]) == [(*suites, [])]
    assert real_programs.runs(["sort", "suites/git"]) == [(*programs, ["sort"]), (*suites, ["git"])]
