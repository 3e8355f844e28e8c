"""One test under one axis: how it is run, and what its output says about each of its cases."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matrix.axes import Axis, points

KINDS = frozenset(("abi", "model", "stress", "fault", "preload", "footprint", "sampling", "api"))
LEFT_OUT_LABELS = frozenset(("timing", "long"))
# The shortest form of tests that have a length.
SHORT = {"FREESTONE_TEST_OPS": "0.02", "FREESTONE_STORM_SECONDS": "1"}
SKIPPED = 77
LEAST_LIMIT_S = 120.0
PATIENCE = 30.0  # what takes so many times as long as in peace hangs
OUTPUT_MAX = 4 << 20
END = "(end)"  # the case that stands for the program itself

NULL_PAGES = 0x10000
DAMAGE = re.compile(
    r"content changed|lost content|is not zero|that are not zero|overlaps|corrupt|differs from that on|misaligned"
    r"|does not hold:|stand-in: (?:the heap is damaged|killed for)|freestone: (?:lost memory|[a-z ]+ of 0x)"
)
KILLED = re.compile(
    r"ended by |[Ss]tatus[ =]-\d+|-\d+ != -?\d+|Segmentation fault|Aborted|Bad system call|core dumped"
    r"|ran past its time"
)
NO_MEMORY = re.compile(
    r"bad_alloc|terminate called without an active exception|Cannot allocate memory|[Oo]ut of memory|MemoryError"
    r"|memory exhausted"
)
FAULT = re.compile(r"stand-in: fault at 0x([0-9a-f]+) by (\S+)")

stopping = threading.Event()  # once set, cells in progress are ended and Stopped is raised for each


class Stopped(Exception):
    pass


@dataclass(frozen=True)
class Test:
    name: str
    command: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]

    @property
    def builds(self) -> tuple[str, ...]:
        last = self.name.rsplit(".", 1)[-1]
        return (last,) if last in ("fast", "hardened") else ("fast", "hardened")


@dataclass(frozen=True)
class Failure:
    """A case that failed. `hurt`: it died, hung, or found damage, rather than missed an amount."""

    case: str
    text: str
    hurt: bool


@dataclass
class Outcome:
    """How one cell ended. `called`: the bits of the census, by the number of the call."""

    skipped: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    called: dict[int, int] = field(default_factory=dict)

    def met(self, axis: Axis) -> bool:
        return not axis.points or any(self.called.get(number, 0) & (2 if axis.in_main else 3) for number in axis.points)


def tests(build: Path, libraries: Path) -> list[Test]:
    """ctest's tests of a build folder that load the library, with the matrix's libraries in place of the shipped."""
    command = ["ctest", "--test-dir", str(build), "--show-only=json-v1"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["tests"]
    result = []
    for entry in listed:
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        labels = set(properties.get("LABELS", []))
        if not labels & KINDS or labels & LEFT_OUT_LABELS or properties.get("DISABLED") or "command" not in entry:
            continue
        name = str(entry["name"])
        settings = dict(setting.split("=", 1) for setting in properties.get("ENVIRONMENT", []))
        troubled = {key: _replaced(value, build, libraries) for key, value in settings.items()}
        if Path(entry["command"][0]).parent.name == "api":  # linked to a library of the same name
            form = "-hardened" if name.endswith(".hardened") else ""
            troubled["LD_PRELOAD"] = str(libraries / f"libfreestone{form}.so.1")
        if troubled != settings:
            result.append(Test(name, tuple(entry["command"]), tuple(troubled.items())))
    return result


def _replaced(value: str, build: Path, libraries: Path) -> str:
    shipped = re.compile(rf"{re.escape(str(build))}/(libfreestone(?:-hardened)?\.so)")
    return shipped.sub(rf"{libraries}/\1", value)


def environment(test: Test, axis: Axis, census: str) -> dict[str, str]:
    faults = "1" if axis.runs_out else ""
    trouble = {
        "STAND_IN": axis.rules,
        "STAND_IN_CONF": axis.options,
        "STAND_IN_CENSUS": census,
        "STAND_IN_FAULTS": faults,
    }
    return {**os.environ, **SHORT, **dict(test.settings), **{k: v for k, v in trouble.items() if v}}


def line(test: Test, axis: Axis) -> str:
    """The shell command that runs a cell again."""
    wanted = {**dict(test.settings), "STAND_IN": axis.rules, "STAND_IN_CONF": axis.options}
    words = [f"{key}='{value}'" if " " in value else f"{key}={value}" for key, value in wanted.items() if value]
    return " ".join(["env", *words, *test.command])


def run(test: Test, axis: Axis, limit_s: float) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="matrix-", ignore_cleanup_errors=True) as folder:
        census = Path(folder) / "census"
        census.write_bytes(bytes(64))
        log = Path(folder) / "output"
        begin = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                test.command, env=environment(test, axis, str(census)), cwd=folder, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            status, cpu_seconds = _wait(process, limit_s)
        seconds = time.monotonic() - begin
        with log.open("rb") as text:
            shown = text.read(OUTPUT_MAX).decode(errors="replace")
        called = {number: byte for number, byte in enumerate(census.read_bytes()) if byte}
    failures = [] if status in (0, SKIPPED) else judged(shown, status, limit_s)
    return Outcome(status == SKIPPED, round(seconds, 3), round(cpu_seconds, 3), failures, called)


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> tuple[int | None, float]:
    """The exit status, or None for a test that was ended after `limit_s`, and the processor time of the test and of
    the processes that it waited for. Whatever it left running is ended, too."""
    end = time.monotonic() + limit_s
    pause = 0.001
    ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    while not ended and time.monotonic() < end and not stopping.is_set():
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if not ended:
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # Popen need not wait
    if stopping.is_set():
        raise Stopped
    return process.returncode if ended else None, usage.ru_utime + usage.ru_stime


def judged(text: str, status: int | None, limit_s: float) -> list[Failure]:
    """The cases that failed. If the program did not come to its end, this is a case of its own."""
    failures = [Failure(case, part, is_hurt(part)) for case, part in (*_of_gtest(text), *_of_unittest(text))]
    if status is None:
        return [*failures, Failure(END, f"hung: ended after {limit_s:.0f} s\n{text[-2000:]}", True)]
    if status != 1 or not failures:
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        tail = f"{how}\n{text[-3000:]}"
        failures.append(Failure(END, tail, is_hurt(tail)))
    return failures


def _of_gtest(text: str) -> list[tuple[str, str]]:
    parts = re.findall(
        r"^\[ RUN      \] (\S+)\n(.*?)(?=^\[ RUN      \]|^\[==========\]|\Z)", text, re.MULTILINE | re.DOTALL
    )
    return [
        (case, part) for case, part in parts if re.search(rf"^\[  FAILED  \] {re.escape(case)}", part, re.MULTILINE)
    ]


def _of_unittest(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"^(?:FAIL|ERROR): (\w+) \(.*?\n(.*?)(?=^={70}|^-{70}\nRan |\Z)", text, re.MULTILINE | re.DOTALL)
    return [(case, part) for case, part in found]


def is_hurt(text: str) -> bool:
    """Whether a failing case's text tells of a death, a hang or damage that no lack of memory explains."""
    if DAMAGE.search(text):
        return True
    faults = [int(at, 16) for at, _ in FAULT.findall(text)]
    if any(at >= NULL_PAGES for at in faults):
        return True
    return KILLED.search(text) is not None and not faults and NO_MEMORY.search(text) is None


def names_of(numbers: Sequence[int]) -> str:
    table = points()
    return " ".join(table[number].name for number in numbers)
