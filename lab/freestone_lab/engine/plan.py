"""What an experiment does: the task, the plan, and what a run finds around it."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from freestone_lab.analysis.inference import SAME
from freestone_lab.core.errors import UserError
from freestone_lab.measure.server import Server

PADDING = "FREESTONE_PADDING"
SERIES_ROUNDS = 3  # the memory curve of this many rounds is kept

Check = Callable[[Path, Path], str | None]


@dataclass(frozen=True)
class Task:
    """One program with fixed input. `read` says whether stdout is output to be compared or a workload's JSON.

    `check` gets the stdout file and the working folder, and returns what is wrong with them, or None.
    """

    id: str
    workload: str
    argv: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path()
    stdin: Path | None = None
    output_files: tuple[Path, ...] = ()
    inputs: tuple[Path, ...] = ()  # that its command line does not name
    expect_exit: int = 0
    timeout_s: float | None = None
    linger_ms: int = 0
    read: Literal["output", "workload"] = "output"
    check: Check | None = None
    caveats: tuple[str, ...] = ()
    seconds: float = 1.0  # roughly what one run takes under the baseline; only for estimates
    unfit: Mapping[str, str] = field(default_factory=dict)  # allocators that cannot finish it by their nature, and why
    prepare: str | None = None  # shell commands around every run, outside the measured time
    cleanup: str | None = None
    ignore_failure: bool = False  # any exit status is success
    server: Server | None = None  # the program is a server, measured under load
    watched: bool = False  # the first run is watched for a program that does not end by itself
    judged: tuple[str, ...] = ()  # the figures that decide, memory last; none: by what the program reports


@dataclass(frozen=True)
class Plan:
    """When an experiment is decided, and where it runs. Without `decide`, exactly `rounds` rounds are run."""

    rounds: int = 1000  # at most
    decide: bool = False  # ends once the decision is settled and each ratio is known; who has lost leaves the race
    precision: float = SAME  # within which a ratio counts as known
    seed: int = 0
    cpus: tuple[int, ...] | None = None  # None: chosen after the warm-up
    counts: bool = False
    control_rounds: int | None = None  # controls besides the A/A control run in this many rounds only; None: in all
    series_rounds: int = SERIES_ROUNDS
    name_own: bool = False  # a program that brings an allocator gives the baseline its name
    share: bool = False  # what an allocator could win is sampled first, and nothing is measured where that is nothing
    warmup: int = 0  # unmeasured runs of each peer before its proof
    aged: int | None = None  # programs start in a heap with holes, by this seed


@dataclass(frozen=True)
class Progress:
    """How far an experiment is. `remaining_s` is None while nobody can know it."""

    task: str
    peer: str
    round: int
    done: int
    expected: int
    remaining_s: float | None


Report = Callable[[Progress], None]


def base_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would change the allocator under test, plus `extra`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LD_") and k not in ("FREESTONE_ROOT", PADDING)}
    library_path = os.environ.get("LD_LIBRARY_PATH")
    if library_path:
        env["LD_LIBRARY_PATH"] = library_path
    env.update(extra)
    return env


def open_folder(scratch: Path) -> Path:
    """A folder in which a server that runs as another user can leave its account."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    scratch.chmod(0o711)
    folder.chmod(0o777)
    return folder


def names_in(folder: Path) -> set[str]:
    """The names in a folder. Empty if it cannot be read."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError:
        return set()


def shell(command: str | None, option: str, cwd: Path) -> None:
    """Runs the user's command around a run, without the allocator under test and outside the measured time."""
    if command is None:
        return
    done = subprocess.run(command, shell=True, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"{option} '{command}' ended with status {done.returncode}" + (f": {said[-1]}" if said else ""))
