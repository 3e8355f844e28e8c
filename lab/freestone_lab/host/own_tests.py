"""Everything that `freestone test` runs: the builds, their tests, then the lab's own, counted into one line.

CMakePresets.json says what a preset builds and which tests belong to it.
"""

from __future__ import annotations

import contextlib
import enum
import importlib.util
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.core import builds, paths
from freestone_lab.core.errors import UserError


class Form(enum.Enum):
    """Which tests run: the usual ones, their long forms, or those that judge times."""

    USUAL = "usual"
    LONG = "long"
    TIMING = "timing"


@dataclass(frozen=True)
class Part:
    """The tests of one preset, and the length of its random ones, as FREESTONE_TEST_OPS.

    It is skipped on a machine that lacks one of the programs in `needs`.
    """

    preset: str
    length: float
    form: Form = Form.USUAL
    needs: tuple[str, ...] = ()

    def absent(self) -> list[str]:
        return [program for program in self.needs if shutil.which(program) is None]


# A sanitizer build has by itself only the tests that a sanitizer can judge; they are some ten times slower there.
# What `dev` checks, `asan` checks, too: it is the same build with an instrument more. Emulation is slower still.
PARTS = (
    Part("release", 0.05),
    Part("release-clang", 1),
    Part("dev", 0.25, Form.LONG),
    Part("asan", 0.02),
    Part("tsan", 0.02),
    Part("aarch64", 0.00025, Form.LONG, ("aarch64-linux-gnu-g++", "qemu-aarch64")),
)
LAB = "lab"
PLUGIN = "xdist"  # of pytest; what a Python without the packages of lab/requirements-dev.txt lacks
LONGER = 200.0  # the long form of a random test, as a multiple of the usual one
STORM_SECONDS = "600"
FUZZ_SECONDS = "3600"
EXPLORE_PREEMPTIONS = "3"

# Labels of ctest and marks of pytest that are not for every run.
LABELS = {
    Form.USUAL: ("-LE", "^(timing|long)$"),
    Form.LONG: ("-LE", "^timing$"),
    Form.TIMING: ("-L", "^timing$"),
}
MARKS = {Form.USUAL: "not timing and not long", Form.LONG: "not timing", Form.TIMING: "timing"}


@dataclass
class Tally:
    """What ran. `problems` are one line each."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.problems += other.problems

    @property
    def good(self) -> bool:
        return self.failed == 0 and self.passed > 0

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def read_junit(path: Path, name: str) -> Tally:
    """Counts the cases of a JUnit file. A file that is missing, unreadable or empty of cases is a failure."""
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
    if tally.passed + tally.failed + tally.skipped == 0:
        return Tally(failed=1, problems=[f"{name}: not a single test"])
    return tally


def _run(command: Sequence[str], cwd: Path, log: Path | None = None, settings: Mapping[str, str] | None = None) -> int:
    """Returns the exit status. With `log`, all output goes there. `settings` join the environment."""
    variables = {**os.environ, **(settings or {})}
    with contextlib.nullcontext() if log is None else log.open("wb") as output:
        done = subprocess.run(
            command, cwd=cwd, check=False, stdin=subprocess.DEVNULL, env=variables, stdout=output, stderr=output
        )
    return done.returncode


def _judged(tally: Tally, status: int, runner: str) -> Tally:
    """A runner that fails without naming a test is a failure too."""
    if status != 0 and tally.failed == 0:
        tally.add(Tally(failed=1, problems=[f"{runner} ended with status {status}"]))
    return tally


def build_part(part: Part, jobs: int) -> Tally:
    """Configures and builds one preset. A build that fails counts as one failed test."""
    configure = ["cmake", "--preset", part.preset]
    build = ["cmake", "--build", "--preset", part.preset, "-j", str(jobs)]
    with builds.lock(part.preset):
        for step in (configure, build):
            if _run(step, paths.root()) != 0:
                return Tally(failed=1, problems=[f"{part.preset}: '{' '.join(step)}' failed"])
    return Tally()


def test_part(part: Part, form: Form, jobs: int) -> Tally:
    """Runs the tests of a built preset with ctest. Those that judge times run one at a time."""
    report = paths.build_dir(part.preset) / "tests.xml"
    report.unlink(missing_ok=True)
    command = ["ctest", "--preset", part.preset, "-j", "1" if form is Form.TIMING else str(jobs)]
    command += [*LABELS[form], "--output-junit", str(report)]
    settings = {"FREESTONE_TEST_OPS": f"{part.length * (LONGER if form is Form.LONG else 1):g}"}
    if form is Form.LONG:
        settings["FREESTONE_STORM_SECONDS"] = STORM_SECONDS
        settings["FREESTONE_FUZZ_SECONDS"] = FUZZ_SECONDS
        settings["FREESTONE_EXPLORE_PREEMPTIONS"] = EXPLORE_PREEMPTIONS
    status = _run(command, paths.root(), settings=settings)
    return _judged(read_junit(report, part.preset), status, f"{part.preset}: ctest")


def lab_python() -> str:
    """A Python with the packages of the lab's tests; the shell command installs them where this one lacks them."""
    if importlib.util.find_spec(PLUGIN) is not None:
        return sys.executable
    if _run([str(paths.root() / "freestone"), "--with-packages=dev"], paths.root()) != 0:
        raise UserError("test: the Python packages of the lab could not be installed")
    return str(paths.root() / ".venv" / "bin" / "python")


def run_lab(form: Form, python: str, jobs: int) -> Tally:
    """Runs the lab's own tests with pytest, a file in one process. Those that judge times run one at a time.

    Its output appears at its end, because other tests may run beside it.
    """
    report, log = paths.cache_dir() / "pytest.xml", paths.cache_dir() / "pytest.log"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-m", MARKS[form], f"--junitxml={report}"]
    if form is not Form.TIMING:
        command += ["-n", str(jobs), "--dist", "loadfile", "--max-worker-restart", "1"]
    status = _run(command, paths.root() / "lab", log)
    print(log.read_text(errors="replace"), file=sys.stderr)
    return _judged(read_junit(report, LAB), status, f"{LAB}: pytest")


def run_all(names: Iterable[str], form: Form, say: Callable[[str], None]) -> Tally:
    """Runs the named parts, or all. Only the first part and the lab have tests that judge times.

    The lab's tests use what the first part builds. They run beside the rest unless they judge times: each of the two
    uses what the other leaves of the processors, and whichever ends last has all of them.
    Their packages are installed beside the first build. No test starts before both have ended: some use `.venv`.
    """
    parts = PARTS[:1] if form is Form.TIMING else PARTS
    wanted = set(names) or {*(part.preset for part in parts if part.form in (Form.USUAL, form)), LAB}
    jobs = os.cpu_count() or 1
    total = Tally()
    with ThreadPoolExecutor(max_workers=1) as beside:
        python = beside.submit(lab_python)
        lab: Future[Tally] | None = None
        for part in parts:
            if part.preset not in wanted:
                continue
            if absent := part.absent():
                say(f"skipping {part.preset}: there is no {', no '.join(absent)}")
                total.skipped += 1
            else:
                say(f"building {part.preset}")
                built = build_part(part, jobs)
                python.result()
                if LAB in wanted and lab is None and form is not Form.TIMING:
                    say(f"testing the lab, beside {part.preset}")
                    lab = beside.submit(run_lab, form, python.result(), jobs)
                say(f"testing {part.preset}")
                total.add(test_part(part, form, jobs) if built.failed == 0 else built)
        if LAB in wanted:
            total.add(lab.result() if lab else run_lab(form, python.result(), jobs))
    return total
