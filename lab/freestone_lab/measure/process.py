"""One fresh process, measured: time, memory of the whole process tree, faults, switches, and the noise around it.

The static launcher of `native/` does the work, so neither the size nor the speed of this Python is in a figure.
"""

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freestone_lab.core.errors import UserError
from freestone_lab.measure import native


@dataclass(frozen=True)
class Placement:
    """The CPUs of the measured program and of the launcher that watches it; empty means all."""

    target: tuple[int, ...] = ()
    watcher: tuple[int, ...] = ()


@dataclass(frozen=True)
class Request:
    """What to run. `env` is the whole environment. `library` is the preload whose mapping the launcher looks for."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stdin: Path | None = None
    timeout_s: float = 600
    placement: Placement = Placement()
    library: str | None = None
    address_space_kib: int = 0
    linger_ms: int = 0


@dataclass(frozen=True)
class Run:
    """What one process cost. `mapped`: the library was seen in it (1), was not (0), or the run was too short (-1)."""

    exit_status: int | None
    signal: int
    timed_out: bool
    exec_error: int
    wall_s: float
    user_s: float
    sys_s: float
    rss_kib: int  # the peak of the largest process, or of what all held together, whichever is more
    pss_kib: int | None
    end_rss_kib: int
    minor_faults: int
    major_faults: int
    threads: int
    processes: int
    mapped: int
    left: int  # processes that still lived when the main one had ended
    rss_series: list[list[float]]
    gauges: dict[str, float]

    @property
    def failure(self) -> str | None:
        """Why the process did not end by itself, or None."""
        if self.exec_error:
            return f"does not start: {os.strerror(self.exec_error)}"
        if self.timed_out:
            return f"stopped after {self.wall_s:.0f} s"
        if self.signal:
            return f"killed by {signal.Signals(self.signal).name}"
        return None


def cpu_ticks() -> tuple[float, float, float]:
    """All, stolen and waiting ticks of /proc/stat since boot."""
    fields = [float(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), fields[7], fields[4]


def _pressure_us() -> float:
    """Total microseconds in which some task waited for a CPU. 0 if the kernel does not say."""
    try:
        return float(Path("/proc/pressure/cpu").read_text().split("total=", 1)[1].split()[0])
    except (OSError, IndexError, ValueError):
        return 0.0


def _command(request: Request, report_fd: int) -> list[str]:
    command = [str(native.tool("launch")), "--report-fd", str(report_fd)]
    options = {
        "--timeout-ms": max(1, round(request.timeout_s * 1000)),
        "--target-cpus": ",".join(map(str, request.placement.target)),
        "--own-cpus": ",".join(map(str, request.placement.watcher)),
        "--library": request.library,
        "--as-limit-kib": request.address_space_kib,
        "--linger-ms": request.linger_ms,
    }
    command += [word for name, value in options.items() if value for word in (name, str(value))]
    return [*command, "--", *request.argv]


class Running:
    """A program under the launcher. The owner must call `close()`: it kills what is left, so afterwards all is gone."""

    def __init__(self, request: Request, stdout: Path, stderr: Path) -> None:
        self.stderr = stderr
        reader, writer = os.pipe()
        self.before, self.pressure = cpu_ticks(), _pressure_us()
        with stdout.open("wb") as out, stderr.open("wb") as err, Path(request.stdin or os.devnull).open("rb") as stdin:
            self.process = subprocess.Popen(
                _command(request, writer),
                stdin=stdin,
                stdout=out,
                stderr=err,
                env=dict(request.env),
                cwd=request.cwd,
                pass_fds=(writer,),
                start_new_session=True,
            )
        os.close(writer)
        self.report = os.fdopen(reader, "rb")

    @property
    def pid(self) -> int:
        """The launcher's pid. The program and all that it starts lie below it, even what forks away."""
        return self.process.pid

    def ended(self, within_s: float) -> bool:
        """Waits at most this long until the program and its whole tree are gone."""
        return bool(select.select([self.report], [], [], within_s)[0])

    def result(self) -> Run:
        """Waits for the end. Raises UserError if the launcher itself failed."""
        raw = self.report.read()
        if self.process.wait() != 0:
            raise UserError(f"the launcher failed: {tail(self.stderr)}")
        return _run_of(json.loads(raw), self.before, self.pressure)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.report.close()


def run(
    request: Request, stdout: Path, stderr: Path, observe: Callable[[int], None] | None = None, every_s: float = 0.1
) -> Run:
    """Runs one process to its end, its output in the two files. KeyboardInterrupt kills it and goes on up.

    `observe` gets the launcher's pid now and then; what it raises kills the process and goes on up too.
    """
    running = Running(request, stdout, stderr)
    try:
        while observe is not None and not running.ended(every_s):
            observe(running.pid)
        return running.result()
    finally:
        running.close()


def _run_of(raw: dict[str, Any], ticks: tuple[float, float, float], pressure: float) -> Run:
    """The launcher's report, with the noise since the start."""
    after = cpu_ticks()
    elapsed = max(after[0] - ticks[0], 1.0)
    gauges = {
        "steal": (after[1] - ticks[1]) / elapsed,
        "iowait": (after[2] - ticks[2]) / elapsed,
        "cpu_pressure": (_pressure_us() - pressure) / 1e6 / max(raw["wall_s"], 1e-6),
        "load": os.getloadavg()[0],
        "involuntary_switches": float(raw.pop("involuntary")),
        "voluntary_switches": float(raw.pop("voluntary")),
    }
    exit_status = raw["exit_status"] if raw["exit_status"] >= 0 else None
    held = {"rss_kib": max(raw["rss_kib"], raw["pss_kib"]), "pss_kib": raw["pss_kib"] or None}
    return Run(**{**raw, **held, "exit_status": exit_status}, gauges=gauges)


def tail(path: Path, limit: int = 200) -> str:
    """The last line of a file that is not blank, cut to `limit` characters; "" if there is none."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:limit] if lines else ""
