"""Everything `freestone test` runs: which builds, which of their tests, then the lab's own; counted into one line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab import paths


@dataclass(frozen=True)
class Part:
    """The tests of one CMake preset: those whose label matches `labels`, all when it is empty."""

    preset: str
    labels: str = ""
    settings: tuple[str, ...] = ("-DFREESTONE_LAB=OFF",)
    targets: tuple[str, ...] = ()  # all when empty
    length: str = "1"  # of random tests, as FREESTONE_TEST_OPS


UNIT = "allocator_unit_test"
SANITIZED = (UNIT, "abi_c_names_test", "model_model_test", "stress_threads_test")

# The one table. Each part builds what its tests run and nothing else; a test whose program is not built fails. A
# sanitizer build has by itself only the tests that a sanitizer can judge; they are some ten times slower there.
PARTS: tuple[Part, ...] = (
    Part("release", settings=("-DFREESTONE_LAB=ON",)),
    Part("release-clang", labels="golden", targets=("freestone", "trace_probe")),
    Part("dev", labels="unit", targets=(UNIT,)),
    Part(
        "asan",
        settings=("-DFREESTONE_LAB=OFF", "-DFREESTONE_SANITIZE=address,undefined"),
        targets=SANITIZED,
        length="0.05",
    ),
    Part("tsan", targets=SANITIZED, length="0.05"),
)
LAB = "lab"
ALONE = "alone"  # the mark of tests of the lab that judge times: nothing else may run beside them


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


def _run(command: Sequence[str], cwd: Path, log: Path | None = None, **environment: str) -> int:
    """The exit status; with `log`, everything that it prints goes there."""
    variables = {**os.environ, **environment}
    with contextlib.nullcontext() if log is None else log.open("wb") as output:
        done = subprocess.run(
            command, cwd=cwd, check=False, stdin=subprocess.DEVNULL, env=variables, stdout=output, stderr=output
        )
    return done.returncode


def build_part(part: Part, jobs: int) -> Tally:
    """Configures and builds one preset. A build that fails counts as one failed test."""
    folder = paths.build_dir(part.preset)
    configure = ["cmake", "--preset", part.preset, *part.settings]
    build = ["cmake", "--build", str(folder), "-j", str(jobs)]
    build += ["--target", *part.targets] if part.targets else []
    for step in (configure, build):
        if _run(step, paths.root()) != 0:
            return Tally(failed=1, problems=[f"{part.preset}: '{' '.join(step)}' failed"])
    return Tally()


def test_part(part: Part, jobs: int) -> Tally:
    """The tests of a preset that is built, by ctest."""
    folder = paths.build_dir(part.preset)
    report = folder / "tests.xml"
    report.unlink(missing_ok=True)
    command = [
        "ctest",
        "--test-dir",
        str(folder),
        "-j",
        str(jobs),
        "--output-on-failure",
        "--output-junit",
        str(report),
    ]
    command += ["-L", part.labels] if part.labels else []
    status = _run(command, paths.root(), FREESTONE_TEST_OPS=part.length)
    tally = read_junit(report, part.preset)
    if status != 0 and tally.failed == 0:
        tally.failed += 1
        tally.problems.append(f"{part.preset}: ctest ended with status {status}")
    return tally


def run_lab(marks: str) -> Tally:
    """The lab's own tests with these marks, by pytest. What it prints appears when it has ended: other tests may run
    beside it."""
    report, log = paths.cache_dir() / "pytest.xml", paths.cache_dir() / "pytest.log"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    status = _run([sys.executable, "-m", "pytest", "-m", marks, f"--junitxml={report}"], paths.root() / "lab", log)
    print(log.read_text(errors="replace"), file=sys.stderr)
    tally = read_junit(report, LAB)
    if status != 0 and tally.failed == 0:
        tally.failed += 1
        tally.problems.append(f"{LAB}: pytest ended with status {status}")
    return tally


def run_all(names: Iterable[str], say: Callable[[str], None]) -> Tally:
    """Runs the named parts, all when none is named.

    The lab's tests use what the first part builds, and one processor; they begin when that is built, beside the rest,
    but for those that judge times, which come last.
    """
    wanted = set(names) or {*(part.preset for part in PARTS), LAB}
    jobs = os.cpu_count() or 1
    total = Tally()
    with ThreadPoolExecutor(max_workers=1) as beside:
        lab: Future[Tally] | None = None
        for part in PARTS:
            if part.preset in wanted:
                say(f"building {part.preset}")
                built = build_part(part, jobs)
                if LAB in wanted and lab is None:
                    say(f"testing the lab, beside {part.preset}")
                    lab = beside.submit(run_lab, f"not {ALONE}")
                say(f"testing {part.preset}")
                total.add(test_part(part, jobs) if built.failed == 0 else built)
        if LAB in wanted:
            total.add(lab.result() if lab else run_lab(f"not {ALONE}"))
            say("testing the lab: what judges times")
            total.add(run_lab(ALONE))
    return total
