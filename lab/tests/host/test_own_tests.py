"""The counting of tests: a failure, a build that breaks, and a suite that runs nothing are never a pass."""

import io
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from freestone_lab.core import paths, units
from freestone_lab.core.errors import UserError
from freestone_lab.host import own_tests
from freestone_lab.host.own_tests import Form, Tally
from freestone_lab.host.progress import Done, Progress
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


class Silent(Progress):
    """Runs nothing: notes the commands, and what was said."""

    def __init__(self, status: int = 0) -> None:
        super().__init__(io.StringIO())
        self.said: list[str] = []
        self.commands: list[str] = []
        self.status = status

    def say(self, line: str) -> None:
        self.said.append(line)

    def run(self, what: str, command: Sequence[str], *rest: object, **settings: object) -> Done:
        self.commands.append(" ".join(command))
        return Done(self.status, 2.0)


def test_a_build_that_fails_is_a_failed_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tests, "PARTS", (own_tests.Part("nosuch", 1),))
    tally = own_tests.run_all(["nosuch"], Form.SHORT, Silent(status=1))
    assert tally.failed == 1 and "--preset nosuch' failed" in tally.problems[0]


def test_processor_time_is_shared_out_to_the_rooms(tmp_path: Path) -> None:
    (tmp_path / "tests.xml").write_text(
        '<testsuite><testcase name="abi.errno.fast" time="1"/><testcase name="abi.exports.fast" time="2"/>'
        '<testcase name="test_x" classname="tests.heap.test_agent" time="3"/></testsuite>'
    )
    tally = own_tests.read_junit(tmp_path / "tests.xml", "release", 12.0)
    assert tally.seconds == {"release abi": 6.0, "release heap": 6.0}
    tally.add(Tally(seconds={"release build": 8.0}))
    assert tally.seconds_line() == "CPU seconds: 20 (release build 8, release abi 6, release heap 6)"


@pytest.mark.all
def test_the_short_form_fits_five_minutes_of_two_processors() -> None:
    """The last short form of all parts, as it is run first by .ci/run."""
    record = own_tests.short_form_record()
    if not record.exists():
        pytest.skip("no short form ran here: ./freestone test")
    seconds = json.loads(record.read_text())
    assert {"release build", "release abi", "lab heap"} <= seconds.keys()
    assert sum(seconds.values()) <= own_tests.SHORT_CPU_SECONDS, seconds


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built and tested, in order; nothing is."""
    done: list[str] = []

    def note(step: str, passed: int) -> Tally:
        done.append(step)
        return Tally(passed=passed)

    monkeypatch.setattr(own_tests, "short_form_record", lambda: tmp_path / "short-form.json")
    monkeypatch.setattr(own_tests, "build_part", lambda part, *rest: note(f"build {part.preset}", 0))
    monkeypatch.setattr(own_tests, "test_part", lambda part, form, *rest: note(f"test {part.preset} {form.value}", 1))
    monkeypatch.setattr(own_tests, "run_lab", lambda form, python, *rest: note(f"lab {form.value} by {python}", 10))
    return done


@pytest.mark.parametrize("names", [[], ["one", "lab"], ["lab"], ["two"]])
@pytest.mark.parametrize("form", [Form.SHORT, Form.ALL])
def test_every_wanted_part_runs_once_and_the_lab_after_the_first_build(
    monkeypatch: pytest.MonkeyPatch, steps: list[str], names: list[str], form: Form
) -> None:
    monkeypatch.setattr(own_tests, "PARTS", (own_tests.Part("one", 1, Form.SHORT), own_tests.Part("two", 1)))
    tally = own_tests.run_all(names, form, Silent())
    wanted = names or (["one", "lab"] if form is Form.SHORT else ["one", "two", "lab"])
    parts, lab = [name for name in wanted if name != "lab"], f"lab {form.value} by {sys.executable}"
    of_parts = [step for step in steps if step != lab]
    forms = {"one": form.value, "two": "all"}  # the second has no short form
    assert of_parts == [step for part in parts for step in (f"build {part}", f"test {part} {forms[part]}")]
    assert steps.count(lab) == ("lab" in wanted)
    if "lab" in wanted and parts:
        assert steps.index(lab) > steps.index(f"build {parts[0]}")
    assert tally.passed == len(parts) + 10 * ("lab" in wanted)
    assert own_tests.short_form_record().exists() == (form is Form.SHORT and not names)


def test_packages_are_installed_beside_the_first_build_and_before_the_first_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building, order = threading.Event(), list[str]()

    class Waiting(Silent):
        def run(self, what: str, command: Sequence[str], *rest: object, **settings: object) -> Done:
            assert building.wait(600), "the build came after the packages"
            order.append(" ".join(command))
            return Done(0, 1.0)

    def built(*rest: object) -> Tally:
        building.set()
        return Tally()

    def tested(what: str) -> Tally:
        order.append(what)
        return Tally(passed=1)

    monkeypatch.setenv("FREESTONE_ROOT", str(tmp_path))
    monkeypatch.setattr(own_tests, "PLUGIN", "freestone_no_such_package")
    monkeypatch.setattr(own_tests, "build_part", built)
    monkeypatch.setattr(own_tests, "test_part", lambda *rest: tested("release"))
    monkeypatch.setattr(own_tests, "run_lab", lambda form, python, *rest: tested(f"lab by {python}"))
    own_tests.run_all(["release", "lab"], Form.SHORT, Waiting())
    assert order[0] == f"{tmp_path}/freestone --with-packages=dev"
    assert sorted(order[1:]) == [f"lab by {tmp_path}/.venv/bin/python", "release"]


def test_packages_that_cannot_be_had_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_tests, "PLUGIN", "freestone_no_such_package")
    with pytest.raises(UserError, match="packages of the lab could not be installed"):
        own_tests.run_all(["lab"], Form.ALL, Silent(status=2))


def test_a_runner_that_fails_and_names_no_test_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cache_dir", lambda: tmp_path)

    class Failing(Silent):
        def run(self, what: str, command: Sequence[str], *rest: object, **settings: object) -> Done:
            (tmp_path / "pytest.xml").write_text('<testsuite><testcase name="a"/></testsuite>')
            return Done(3, super().run(what, command).cpu_seconds)

    failing = Failing()
    tally = own_tests.run_lab(Form.ALL, sys.executable, 2, failing)
    assert (tally.passed, tally.failed) == (1, 1)
    own_tests.run_lab(Form.TIMING, sys.executable, 2, failing)
    assert ["-n 2" in command for command in failing.commands] == [True, False]


def test_what_judges_times_runs_alone_and_only_when_asked_for(steps: list[str]) -> None:
    assert own_tests.run_all([], Form.TIMING, Silent()).passed == 11
    assert steps == ["build release", "test release timing", f"lab timing by {sys.executable}"]
    for form in (Form.SHORT, Form.ALL, Form.LONG):
        assert "timing" in " ".join(own_tests.LABELS[form]) and own_tests.LABELS[form][0] == "-LE"
        assert "not timing" in own_tests.MARKS[form]


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("there", [True, False])
def test_the_long_form_runs_on_the_other_processor_where_it_can(
    form: Form, there: bool, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, runs = Silent(), form is Form.LONG
    which = {"aarch64-linux-gnu-g++": "/usr/bin/x", "qemu-aarch64": "/usr/bin/x" if there else None}
    monkeypatch.setattr("shutil.which", which.get)
    tally = own_tests.run_all([], form, silent)
    assert (f"test aarch64 {form.value}" in steps) == (runs and there)
    assert tally.skipped == (runs and not there)
    assert ("skipping aarch64: there is no qemu-aarch64" in silent.said) == (runs and not there)


def test_all_forms_but_the_short_one_leave_out_only_what_has_a_form_of_its_own() -> None:
    """A test that the short form leaves out runs with --all; none is left out of both."""
    assert own_tests.LABELS[Form.ALL] == ("-LE", "^(timing|long)$")
    assert own_tests.MARKS[Form.ALL] == "not timing and not long"


def test_every_part_is_a_preset_to_configure_build_and_test() -> None:
    presets = json.loads((paths.root() / "CMakePresets.json").read_text())
    for kind in ("configurePresets", "buildPresets", "testPresets"):
        assert {part.preset for part in own_tests.PARTS} <= {preset["name"] for preset in presets[kind]}


def test_only_absent_programs_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    here, absent = {"sh": "dash", "/etc/passwd": "present"}, {"freestone-no-such-program": "its-package"}
    monkeypatch.setattr(packages, "PROGRAMS", {**here, **absent, "/nowhere/header.h": "its-headers"})
    assert packages.missing_programs([*here, *absent]) == ["its-package"]
    assert packages.missing_programs(packages.PROGRAMS) == ["its-package", "its-headers"]


def test_the_short_form_installs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    left_out = set(packages.missing_programs()) - set(packages.missing_programs(packages.SHORT_PROGRAMS))
    assert left_out - packages.ONLY_ALL == set() and "clang-19" in left_out


@pytest.mark.parametrize(("text", "expected"), [("60s", 60), ("5m", 300), ("90", 90), ("1.5min", 90), ("250ms", 0.25)])
def test_durations(text: str, expected: float) -> None:
    assert units.seconds(text, "--budget") == expected


@pytest.mark.parametrize("text", ["", "s", "-3s", "0", "3 days"])
def test_wrong_durations_are_named(text: str) -> None:
    with pytest.raises(UserError, match=f"--budget '{text}'"):
        units.seconds(text, "--budget")
