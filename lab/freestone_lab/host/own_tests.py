"""Everything that `freestone test` runs: the builds, their tests, then the lab's own, counted into one line.

CMakePresets.json says what a preset builds and which tests belong to it.
"""

from __future__ import annotations

import enum
import importlib.util
import json
import os
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.core import builds, paths
from freestone_lab.core.errors import UserError
from freestone_lab.host.progress import Progress


class Form(enum.Enum):
    """Which tests run: those that find most for their time, all usual ones, their long forms, or what judges times."""

    SHORT = "short"
    ALL = "all"
    LONG = "long"
    TIMING = "timing"


@dataclass(frozen=True)
class Part:
    """The tests of one preset, and the length of its random ones, as FREESTONE_TEST_OPS.

    `form` is the first form that it belongs to: a part that is named runs in no shorter one. It is skipped on a machine
    that lacks one of the programs in `needs`.
    """

    preset: str
    length: float
    form: Form = Form.ALL
    needs: tuple[str, ...] = ()

    def absent(self) -> list[str]:
        return [program for program in self.needs if shutil.which(program) is None]

    def form_of(self, asked: Form) -> Form:
        return Form.ALL if asked is Form.SHORT and self.form is not Form.SHORT else asked


# A sanitizer build has by itself only the tests that a sanitizer can judge; they are some ten times slower there.
# What `dev` checks, `asan` checks, too: it is the same build with an instrument more. Emulation is slower still.
PARTS = (
    Part("release", 0.05, Form.SHORT),
    Part("release-clang", 1),
    Part("dev", 0.25, Form.LONG),
    Part("asan", 0.02),
    Part("tsan", 0.02),
    Part("aarch64", 0.00025, Form.LONG, ("aarch64-linux-gnu-g++", "qemu-aarch64")),
)
LAB = "lab"
PLUGIN = "xdist"  # of pytest; what a Python without the packages of lab/requirements-dev.txt lacks
# The length of a random test as a multiple of the usual one.
LENGTHS = {Form.SHORT: 0.1, Form.ALL: 1.0, Form.LONG: 200.0, Form.TIMING: 1.0}
STORM_SECONDS = "600"
FUZZ_SECONDS = "3600"
EXPLORE_PREEMPTIONS = "3"
SHORT_CPU_SECONDS = 600  # of the short form in a fresh clone, builds included: five minutes of two processors

# Labels of ctest and marks of pytest that are not for every run.
LABELS = {
    Form.SHORT: ("-LE", "^(timing|long|all)$"),
    Form.ALL: ("-LE", "^(timing|long)$"),
    Form.LONG: ("-LE", "^timing$"),
    Form.TIMING: ("-L", "^timing$"),
}
MARKS = {
    Form.SHORT: "not timing and not long and not all",
    Form.ALL: "not timing and not long",
    Form.LONG: "not timing",
    Form.TIMING: "timing",
}


@dataclass
class Tally:
    """What ran. `problems` are one line each; `seconds` are CPU seconds by room."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.problems += other.problems
        for room, seconds in other.seconds.items():
            self.seconds[room] += seconds

    @property
    def good(self) -> bool:
        return self.failed == 0 and self.passed > 0

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")

    def seconds_line(self) -> str:
        rooms = sorted(self.seconds.items(), key=lambda item: -item[1])
        of_rooms = ", ".join(f"{room} {seconds:.0f}" for room, seconds in rooms)
        return f"CPU seconds: {sum(self.seconds.values()):.0f} ({of_rooms})"


def read_junit(path: Path, name: str, cpu_seconds: float = 0.0) -> Tally:
    """Counts the cases of a JUnit file. A file that is missing, unreadable or empty of cases is a failure.

    The runner's CPU time is shared out to the rooms by their cases' own times.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        return Tally(failed=1, problems=[f"{name}: no readable report of its tests ({error})"])
    tally = Tally()
    for case in root.iter("testcase"):
        title = f"{name}: {case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            tally.failed += 1
            tally.problems.append(title)
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            tally.skipped += 1
        else:
            tally.passed += 1
        tally.seconds[f"{name} {_room(case)}"] += float(case.get("time") or 0)
    if tally.passed + tally.failed + tally.skipped == 0:
        return Tally(failed=1, problems=[f"{name}: not a single test"])
    total = sum(tally.seconds.values()) or 1.0
    for room, own in tally.seconds.items():
        tally.seconds[room] = cpu_seconds * own / total
    return tally


def _room(case: ElementTree.Element) -> str:
    """The folder of a test: ctest's names begin with it, pytest names the module below tests/."""
    parts = case.get("classname", "").split(".")
    return parts[1] if parts[0] == "tests" else case.get("name", "").split(".")[0]


def _judged(tally: Tally, status: int, runner: str) -> Tally:
    """A runner that fails without naming a test is a failure too."""
    if status != 0 and tally.failed == 0:
        tally.add(Tally(failed=1, problems=[f"{runner} ended with status {status}"]))
    return tally


def build_part(part: Part, jobs: int, progress: Progress) -> Tally:
    """Configures and builds one preset. A build that fails counts as one failed test."""
    configure = ["cmake", "-S", str(paths.root()), "--preset", part.preset]
    build = ["cmake", "--build", "--preset", part.preset, "-j", str(jobs)]
    tally = Tally()
    with builds.lock(part.preset):
        for step in (configure, build):
            done = progress.run(f"building {part.preset}", step, paths.root())
            tally.seconds[f"{part.preset} build"] += done.cpu_seconds
            if done.status != 0:
                tally.add(Tally(failed=1, problems=[f"{part.preset}: '{' '.join(step)}' failed"]))
                break
    return tally


def test_part(part: Part, form: Form, jobs: int, progress: Progress) -> Tally:
    """Runs the tests of a built preset with ctest. Those that judge times run one at a time."""
    report = paths.build_dir(part.preset) / "tests.xml"
    report.unlink(missing_ok=True)
    command = ["ctest", "--preset", part.preset, "-j", "1" if form is Form.TIMING else str(jobs)]
    command += [*LABELS[form], "--output-junit", str(report)]
    settings = {"FREESTONE_TEST_OPS": f"{part.length * LENGTHS[form]:g}"}
    if form is Form.LONG:
        settings["FREESTONE_STORM_SECONDS"] = STORM_SECONDS
        settings["FREESTONE_FUZZ_SECONDS"] = FUZZ_SECONDS
        settings["FREESTONE_EXPLORE_PREEMPTIONS"] = EXPLORE_PREEMPTIONS
    done = progress.run(f"testing {part.preset}", command, paths.root(), settings=settings)
    return _judged(read_junit(report, part.preset, done.cpu_seconds), done.status, f"{part.preset}: ctest")


def lab_python(progress: Progress) -> str:
    """A Python with the packages of the lab's tests; the shell command installs them where this one lacks them."""
    if importlib.util.find_spec(PLUGIN) is not None:
        return sys.executable
    install = [str(paths.root() / "freestone"), "--with-packages=dev"]
    if progress.run("installing Python packages", install, paths.root()).status != 0:
        raise UserError("test: the Python packages of the lab could not be installed")
    return str(paths.root() / ".venv" / "bin" / "python")


def run_lab(form: Form, python: str, jobs: int, progress: Progress) -> Tally:
    """Runs the lab's own tests with pytest, a file in one process. Those that judge times run one at a time.

    Its output appears at its end, because other tests may run beside it.
    """
    report = paths.cache_dir() / "pytest.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-m", MARKS[form], f"--junitxml={report}"]
    if form is not Form.TIMING:
        command += ["-n", str(jobs), "--dist", "loadfile", "--max-worker-restart", "1"]
    done = progress.run("testing the lab", command, paths.root() / "lab", at_end=True)
    return _judged(read_junit(report, LAB, done.cpu_seconds), done.status, f"{LAB}: pytest")


def short_form_record() -> Path:
    """Where the short form leaves its CPU seconds by room, as JSON."""
    return paths.cache_dir() / "short-form.json"


def run_all(names: Iterable[str], form: Form, progress: Progress) -> Tally:
    """Runs the named parts, or those of the form. Only the first part and the lab have tests that judge times.

    The lab's tests use what the first part builds. They run beside the rest unless they judge times: each of the two
    uses what the other leaves of the processors, and whichever ends last has all of them.
    Their packages are installed beside the first build. No test starts before both have ended: some use `.venv`.
    """
    forms = {Form.SHORT: {Form.SHORT}, Form.ALL: {Form.SHORT, Form.ALL}, Form.LONG: set(Form), Form.TIMING: set(Form)}
    parts = PARTS[:1] if form is Form.TIMING else PARTS
    wanted = set(names) or {*(part.preset for part in parts if part.form in forms[form]), LAB}
    jobs = os.cpu_count() or 1
    total = Tally()
    with ThreadPoolExecutor(max_workers=1) as beside:
        python = beside.submit(lab_python, progress)
        lab: Future[Tally] | None = None
        for part in parts:
            if part.preset not in wanted:
                continue
            if absent := part.absent():
                progress.say(f"skipping {part.preset}: there is no {', no '.join(absent)}")
                total.skipped += 1
                continue
            built = build_part(part, jobs, progress)
            total.add(built)
            python.result()
            if LAB in wanted and lab is None and form is not Form.TIMING:
                lab = beside.submit(run_lab, form, python.result(), jobs, progress)
            if built.failed == 0:
                total.add(test_part(part, part.form_of(form), jobs, progress))
        if LAB in wanted:
            total.add(lab.result() if lab else run_lab(form, python.result(), jobs, progress))
    if form is Form.SHORT and not names:
        short_form_record().write_text(json.dumps(total.seconds))
    return total
