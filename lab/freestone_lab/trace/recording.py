"""Starts the recorder, after all that can be checked before a program runs."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core import builds, paths, signals
from freestone_lab.core.errors import UserError
from freestone_lab.host import target
from freestone_lab.measure import proof
from freestone_lab.peers import discover

WRITER = "freestone-record"
LIBRARY = "libfreestone-record.so"
REPLAYER = "freestone-replay"
STACK_EVERY = 1000  # births between two sampled stacks


@dataclass(frozen=True)
class Request:
    """What `freestone record` was asked for."""

    output: Path
    command: tuple[str, ...] = ()
    pid: int | None = None
    seconds: float | None = None
    max_bytes: int | None = None
    buffer_bytes: int | None = None
    sample_threads: int = 1
    stacks: bool = False
    under: str | None = None  # the allocator that serves the program; None: its own


def command_line(request: Request) -> tuple[list[str], dict[str, str]]:
    """The writer's command line and environment. UserError for what cannot be recorded."""
    env = {k: v for k, v in os.environ.items() if k != "FREESTONE_ROOT"}
    paths.must_be_writable(request.output, "--output")
    words = ["--output", str(request.output)]
    if bool(request.command) == (request.pid is not None):
        raise UserError("expected either a command after -- or --pid N")
    name = ""
    if request.command:
        found = target.resolve(request.command)
        if proof.defines(str(found.image.resolve()), "malloc"):
            own = "has a malloc of its own, in front of which no preloaded library can stand"
            raise UserError(f"'{found.image}' {own}")
        name = found.path.name
    if request.under:
        peer = discover.find(request.under)
        words += ["--allocator", peer.name]
        env.update(dict(peer.env))
        if peer.path:
            env["LD_PRELOAD"] = ":".join(filter(None, (peer.path, env.get("LD_PRELOAD"))))
    options: dict[str, object] = {
        "--pid": request.pid,
        "--for": request.seconds,
        "--max-bytes": request.max_bytes,
        "--buffer-bytes": request.buffer_bytes,
        "--sample-threads": request.sample_threads,
        "--stack-every": STACK_EVERY if request.stacks else 0,
    }
    for option, value in options.items():
        if value is not None:
            words += [option, str(value)]
    words = [str(builds.built(WRITER)), *words]
    if request.command:
        words += ["--library", str(builds.built(LIBRARY)), "--name", name, "--", *request.command]
    return words, env


def record(request: Request) -> int:
    """Records; the exit status is the command's, or 2 when nothing could be recorded."""
    if request.pid is not None and not Path(f"/proc/{request.pid}").exists():
        raise UserError(f"--pid {request.pid}: no such process")
    words, env = command_line(request)
    process = subprocess.Popen(words, env=env)
    process.returncode = signals.wait(process.pid)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
