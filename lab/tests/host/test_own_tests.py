"""The counting of tests: a failure, a build that breaks, and a suite that runs nothing are never a pass."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from freestone_lab.core import paths, units
from freestone_lab.core.errors import UserError
from freestone_lab.host import own_tests
from freestone_lab.host.own_tests import Form, Tally
from freestone_lab.peers import packages

JUNIT = """<testsuite><testcase name="a"/><testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><skipped/></testcase><testcase name="d" status="fail"/><testcase name="e" status="notrun"/>
<testcase name="f" status="run"/></testsuite>"""


def test_junit_cases_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "tests.xml"
    path.write_text(JUNIT)
    tally = own_tests.read_junit(path, "release")
    assert (tally.passed, tally.failed, tally.skipped) == (2, 2, 2)
    assert tally.problems == ["release: b", "release: d"]


@pytest.mark.parametrize("text", [None, "not xml", "<testsuite/>"])
def test_no_report_or_no_test_is_a_failure(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "tests.xml"
    if text is not None:
        path.write_text(text)
    assert own_tests.read_junit(path, "dev").failed == 1


def test_the_closing_line() -> None:
    assert Tally(3, 0).line() == "3 passed, 0 failed"
    assert Tally(3, 1, 2).line() == "3 passed, 1 failed, 2 skipped"
    assert not Tally(0, 0).good and not Tally(5, 1).good and Tally(1, 0, 4).good


def test_a_build_that_fails_is_a_failed_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tests, "_run", lambda command, cwd: 1)
    monkeypatch.setattr(own_tests, "PARTS", (own_tests.Part("nosuch", 1),))
    tally = own_tests.run_all(["nosuch"], Form.USUAL, lambda line: None)
    assert tally.failed == 1 and "cmake --preset nosuch" in tally.problems[0]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built and tested, in order; nothing is."""
    done: list[str] = []

    def note(step: str, passed: int) -> Tally:
        done.append(step)
        return Tally(passed=passed)

    monkeypatch.setattr(own_tests, "build_part", lambda part, jobs: note(f"build {part.preset}", 0))
    monkeypatch.setattr(own_tests, "test_part", lambda part, form, jobs: note(f"test {part.preset} {form.value}", 1))
    monkeypatch.setattr(own_tests, "run_lab", lambda form, python, jobs: note(f"lab {form.value} by {python}", 10))
    return done


@pytest.mark.parametrize("names", [[], ["one", "lab"], ["lab"], ["two"]])
def test_every_wanted_part_runs_once_and_the_lab_after_the_first_build(
    monkeypatch: pytest.MonkeyPatch, steps: list[str], names: list[str]
) -> None:
    monkeypatch.setattr(own_tests, "PARTS", (own_tests.Part("one", 1), own_tests.Part("two", 1)))
    tally = own_tests.run_all(names, Form.USUAL, lambda line: None)
    wanted = names or ["one", "two", "lab"]
    parts, lab = [name for name in wanted if name != "lab"], f"lab usual by {sys.executable}"
    of_parts = [step for step in steps if step != lab]
    assert of_parts == [step for part in parts for step in (f"build {part}", f"test {part} usual")]
    assert steps.count(lab) == ("lab" in wanted)
    if "lab" in wanted and parts:
        assert steps.index(lab) > steps.index(f"build {parts[0]}")
    assert tally.passed == len(parts) + 10 * ("lab" in wanted)


def test_packages_are_installed_beside_the_first_build_and_before_the_first_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building, order = threading.Event(), list[str]()

    def ran(command: list[str], cwd: Path) -> int:
        assert building.wait(600), "the build came after the packages"
        order.append(" ".join(command))
        return 0

    def built(part: own_tests.Part, jobs: int) -> Tally:
        building.set()
        return Tally()

    def tested(what: str) -> Tally:
        order.append(what)
        return Tally(passed=1)

    monkeypatch.setenv("FREESTONE_ROOT", str(tmp_path))
    monkeypatch.setattr(own_tests, "PLUGIN", "freestone_no_such_package")
    monkeypatch.setattr(own_tests, "_run", ran)
    monkeypatch.setattr(own_tests, "build_part", built)
    monkeypatch.setattr(own_tests, "test_part", lambda part, form, jobs: tested("release"))
    monkeypatch.setattr(own_tests, "run_lab", lambda form, python, jobs: tested(f"lab by {python}"))
    own_tests.run_all(["release", "lab"], Form.USUAL, lambda line: None)
    assert order[0] == f"{tmp_path}/freestone --with-packages=dev"
    assert sorted(order[1:]) == [f"lab by {tmp_path}/.venv/bin/python", "release"]


def test_packages_that_cannot_be_had_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tests, "PLUGIN", "freestone_no_such_package")
    monkeypatch.setattr(own_tests, "_run", lambda command, cwd: 2)
    with pytest.raises(UserError, match="packages of the lab could not be installed"):
        own_tests.run_all(["lab"], Form.USUAL, lambda line: None)


def test_a_runner_that_fails_without_naming_a_test_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "cache_dir", lambda: tmp_path)
    commands: list[str] = []

    def ran(command: list[str], cwd: Path, log: Path) -> int:
        commands.append(" ".join(command))
        (tmp_path / "pytest.xml").write_text('<testsuite><testcase name="a"/></testsuite>')
        log.write_text("what it said")
        return 3

    monkeypatch.setattr(own_tests, "_run", ran)
    tally = own_tests.run_lab(Form.USUAL, sys.executable, 2)
    assert (tally.passed, tally.failed) == (1, 1)
    assert "what it said" in capsys.readouterr().err
    own_tests.run_lab(Form.TIMING, sys.executable, 2)
    assert ["-n 2" in command for command in commands] == [True, False]


def test_what_judges_times_runs_alone_and_only_when_asked_for(steps: list[str]) -> None:
    assert own_tests.run_all([], Form.TIMING, lambda line: None).passed == 11
    assert steps == ["build release", "test release timing", f"lab timing by {sys.executable}"]
    for form in (Form.USUAL, Form.LONG):
        assert "timing" in " ".join(own_tests.LABELS[form]) and own_tests.LABELS[form][0] == "-LE"
        assert "not timing" in own_tests.MARKS[form]


@pytest.mark.parametrize(("form", "runs"), [(Form.USUAL, False), (Form.LONG, True), (Form.TIMING, False)])
@pytest.mark.parametrize("there", [True, False])
def test_the_long_form_runs_on_the_other_processor_where_it_can(
    form: Form, runs: bool, there: bool, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    which = {"aarch64-linux-gnu-g++": "/usr/bin/x", "qemu-aarch64": "/usr/bin/x" if there else None}
    monkeypatch.setattr("shutil.which", which.get)
    tally = own_tests.run_all([], form, said.append)
    assert (f"test aarch64 {form.value}" in steps) == (runs and there)
    assert tally.skipped == (runs and not there)
    assert ("skipping aarch64: there is no qemu-aarch64" in said) == (runs and not there)


def test_every_part_is_a_preset_to_configure_build_and_test() -> None:
    presets = json.loads((paths.root() / "CMakePresets.json").read_text())
    for kind in ("configurePresets", "buildPresets", "testPresets"):
        assert {part.preset for part in own_tests.PARTS} <= {preset["name"] for preset in presets[kind]}


def test_only_absent_programs_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PROGRAMS", {"sh": "dash", "freestone-no-such-program": "its-package"})
    monkeypatch.setattr(packages, "FILES", {"/etc/passwd": "present", "/nowhere/header.h": "its-headers"})
    assert packages.missing_programs(["sh", "freestone-no-such-program"]) == ["its-package"]
    assert packages.missing_programs(packages.PROGRAMS) == ["its-package", "its-headers"]


@pytest.mark.parametrize(("text", "expected"), [("60s", 60), ("5m", 300), ("90", 90), ("1.5min", 90), ("250ms", 0.25)])
def test_durations(text: str, expected: float) -> None:
    assert units.seconds(text, "--budget") == expected


@pytest.mark.parametrize("text", ["", "s", "-3s", "0", "3 days"])
def test_wrong_durations_are_named(text: str) -> None:
    with pytest.raises(UserError, match=f"--budget '{text}'"):
        units.seconds(text, "--budget")
