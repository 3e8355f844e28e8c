"""The counting of tests: a failure, a build that breaks, and a suite that runs nothing are never a pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from freestone_lab import packages, paths, suite_tests, units
from freestone_lab.errors import UserError
from freestone_lab.suite_tests import Tally

JUNIT = """<testsuite><testcase name="a"/><testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><skipped/></testcase><testcase name="d" status="fail"/><testcase name="e" status="notrun"/>
<testcase name="f" status="run"/></testsuite>"""


def test_junit_cases_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "tests.xml"
    path.write_text(JUNIT)
    tally = suite_tests.read_junit(path, "release")
    assert (tally.passed, tally.failed, tally.skipped) == (2, 2, 2)
    assert tally.problems == ["release: b", "release: d"]


@pytest.mark.parametrize("text", [None, "not xml", "<testsuite/>"])
def test_no_report_or_no_test_is_a_failure(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "tests.xml"
    if text is not None:
        path.write_text(text)
    assert suite_tests.read_junit(path, "dev").failed == 1


def test_the_closing_line() -> None:
    assert Tally(3, 0).line() == "3 passed, 0 failed"
    assert Tally(3, 1, 2).line() == "3 passed, 1 failed, 2 skipped"
    assert not Tally(0, 0).good and not Tally(5, 1).good and Tally(1, 0, 4).good


def test_a_build_that_fails_is_a_failed_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_tests, "_run", lambda command, cwd: 1)
    monkeypatch.setattr(suite_tests, "PARTS", (suite_tests.Part("nosuch"),))
    tally = suite_tests.run_all(["nosuch"], lambda line: None)
    assert tally.failed == 1 and "cmake --preset nosuch" in tally.problems[0]


@pytest.mark.parametrize("names", [[], ["one", "lab"], ["lab"], ["two"]])
def test_every_wanted_part_runs_once_and_the_lab_after_the_first_build(
    monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    order: list[str] = []

    def step(kind: str) -> Callable[[suite_tests.Part, int], Tally]:
        def run(part: suite_tests.Part, jobs: int) -> Tally:
            order.append(f"{kind} {part.preset}")
            return Tally(passed=1 if kind == "test" else 0)

        return run

    def lab(marks: str) -> Tally:
        order.append("alone" if marks == "alone" else "lab")
        return Tally(passed=10)

    monkeypatch.setattr(suite_tests, "PARTS", (suite_tests.Part("one"), suite_tests.Part("two")))
    monkeypatch.setattr(suite_tests, "build_part", step("build"))
    monkeypatch.setattr(suite_tests, "test_part", step("test"))
    monkeypatch.setattr(suite_tests, "run_lab", lab)
    tally = suite_tests.run_all(names, lambda line: None)
    wanted = names or ["one", "two", "lab"]
    parts = [name for name in wanted if name != "lab"]
    of_parts = [step for step in order if step not in ("lab", "alone")]
    assert of_parts == [f"{kind} {p}" for p in parts for kind in ("build", "test")]
    assert order.count("lab") == ("lab" in wanted)
    assert order.count("alone") == ("lab" in wanted) and "alone" not in order[:-1]
    if "lab" in wanted and parts:
        assert order.index("lab") > order.index(f"build {parts[0]}")
    assert tally.passed == len(parts) + 20 * ("lab" in wanted)


def test_a_runner_that_fails_without_naming_a_test_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "cache_dir", lambda: tmp_path)

    def ran(command: list[str], cwd: Path, log: Path) -> int:
        (tmp_path / "pytest.xml").write_text('<testsuite><testcase name="a"/></testsuite>')
        log.write_text("what it said")
        return 3

    monkeypatch.setattr(suite_tests, "_run", ran)
    tally = suite_tests.run_lab("not alone")
    assert (tally.passed, tally.failed) == (1, 1)
    assert "what it said" in capsys.readouterr().err


def test_every_part_names_a_preset_of_the_build() -> None:
    presets = (paths.root() / "CMakePresets.json").read_text()
    for part in suite_tests.PARTS:
        assert f'"configurePreset": "{part.preset}"' in presets


def test_only_absent_programs_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PROGRAMS", {"sh": "dash", "freestone-no-such-program": "its-package"})
    monkeypatch.setattr(packages, "FILES", {"/etc/passwd": "present", "/nowhere/header.h": "its-headers"})
    assert packages.missing_programs(["sh", "freestone-no-such-program"]) == ["its-package", "its-headers"]


@pytest.mark.parametrize(("text", "expected"), [("60s", 60), ("5m", 300), ("90", 90), ("1.5min", 90), ("250ms", 0.25)])
def test_durations(text: str, expected: float) -> None:
    assert units.seconds(text, "--budget") == expected


@pytest.mark.parametrize("text", ["", "s", "-3s", "0", "3 days"])
def test_wrong_durations_are_named(text: str) -> None:
    with pytest.raises(UserError, match=f"--budget '{text}'"):
        units.seconds(text, "--budget")
