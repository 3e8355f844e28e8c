"""A server under load: started, waited for, loaded, watched while idle, stopped, its port seen free again.

Each `measure` runs one fresh server. The load runs outside the measured tree and without the allocator under test. The
launcher is the ancestor of everything that the command starts, so it measures and ends even a server that forks away.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from freestone_lab.core.errors import UserError
from freestone_lab.measure import load, tree
from freestone_lab.measure.process import Request, Run, Running, tail

FOR_EVER_MS = 1 << 30
STOP_TIMEOUT_S = 15.0
UNREADY_STOP_S = 2.0  # for a server that never got ready
PORT_TIMEOUT_S = 10.0
POLL_S = 0.02


@dataclass(frozen=True)
class Ready:
    """How to see that the server serves: a TCP port that takes a connection, a URL that answers, a line it prints."""

    kind: Literal["port", "url", "line"]
    text: str

    @property
    def port(self) -> int | None:
        """The port that must be free before and after."""
        if self.kind == "port":
            return int(self.text)
        if self.kind == "url":
            parts = urllib.parse.urlsplit(self.text)
            return parts.port or (443 if parts.scheme == "https" else 80)
        return None


def ready_of(text: str) -> Ready:
    """`6379`, `:6379`, `http://127.0.0.1:8080/`, or a part of a line that the server prints."""
    bare = text.removeprefix(":")
    if re.fullmatch(r"[+-]?\d+", bare):
        if not bare.isdecimal() or not 0 < int(bare) < 65536:
            raise UserError(f"--ready '{text}': expected a port of 1 to 65535")
        return Ready("port", bare)
    if re.match(r"https?://", text):
        return Ready("url", text)
    if not text.strip():
        raise UserError("--ready '': expected a port, a URL, or a part of a line that the server prints")
    return Ready("line", text)


@dataclass(frozen=True)
class Server:
    """What to measure. `idle_s` is how long the server is watched after the load."""

    ready: Ready
    load: tuple[str, ...]
    stop: signal.Signals = signal.SIGTERM
    idle_s: float = 10.0
    ready_timeout_s: float = 60.0
    load_timeout_s: float = 600.0
    load_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    requests_from: str = ""  # a pattern whose group is how many requests the load says it made


@dataclass(frozen=True)
class Served:
    """What one server cost. `failure` is None, or one line that says why the figures do not count."""

    run: Run
    failure: str | None
    load_s: float = 0.0
    generator: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    after_kib: float | None = None  # resident when the load had ended
    idle_kib: float | None = None  # and `idle_s` later
    mapped: bool | None = None  # the preloaded library was seen in every process; None when there is none
    notes: tuple[str, ...] = ()


class ServerFailed(Exception):
    """One line: the server did not get ready, the load failed, the port stayed taken."""


def measure(server: Server, request: Request, folder: Path, *, loaded: bool = True, idle: bool = True) -> Served:
    """Runs one server through its life. With `loaded` false it is only started, seen to be ready, and stopped.

    The limit of the request is for getting ready, and then for the load.
    """
    _expect_free(server.ready.port, "before the server was started")
    stdout, stderr = folder / "stdout", folder / "stderr"
    lasting = Request(**{**vars(request), "timeout_s": 1e6, "linger_ms": FOR_EVER_MS})
    running = Running(lasting, stdout, stderr)
    failure: str | None = None
    stop_s = UNREADY_STOP_S
    seen: dict[str, object] = {}
    notes: list[str] = []
    try:
        try:
            _wait_until_ready(server, running, stdout, stderr, min(server.ready_timeout_s, request.timeout_s))
            stop_s = STOP_TIMEOUT_S
            if request.library:
                alive = filter(tree.alive, tree.descendants(running.pid))
                seen["mapped"] = all(request.library in tree.mapped(pid) for pid in alive)
            if loaded:
                seen |= _load(server, running, folder, idle)
        except ServerFailed as error:
            failure = str(error)
        notes += _stop(server, running, stop_s)
        run = running.result()
        if failure is not None and run.failure:
            failure += f" ({run.failure})"
        with contextlib.suppress(ServerFailed):
            _expect_free(server.ready.port, "after the server was stopped", PORT_TIMEOUT_S)
    finally:
        running.close()
    return Served(run, failure, notes=tuple(notes), **seen)  # type: ignore[arg-type]


def _expect_free(port: int | None, when: str, within_s: float = 0.0) -> None:
    deadline = time.monotonic() + within_s
    while port is not None and tree.port_is_taken(port):
        if time.monotonic() >= deadline:
            raise ServerFailed(f"port {port} is taken {when}: another program listens on it")
        time.sleep(POLL_S)


def _wait_until_ready(server: Server, running: Running, stdout: Path, stderr: Path, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not _is_ready(server.ready, stdout, stderr):
        if running.ended(POLL_S):
            said = tail(stderr) or tail(stdout)
            raise ServerFailed("the server ended before it was ready" + (f": {said}" if said else ""))
        if time.monotonic() > deadline:
            wanted = f"{server.ready.kind} {server.ready.text}"
            raise ServerFailed(f"the server was not ready within {within_s:.0f} s ({wanted})")


def _is_ready(ready: Ready, stdout: Path, stderr: Path) -> bool:
    if ready.kind == "line":
        return any(ready.text.encode() in path.read_bytes() for path in (stdout, stderr))
    if ready.kind == "url":
        try:
            with urllib.request.urlopen(ready.text, timeout=2) as answer:
                return int(answer.status) < 500
        except urllib.error.HTTPError as error:
            return error.code < 500
        except (OSError, ValueError):
            return False
    port = int(ready.text)
    for address in ("127.0.0.1", "::1"):
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return True
    return False


def _load(server: Server, running: Running, folder: Path, idle: bool) -> dict[str, object]:
    """Runs the load, then waits idly; resident memory is read after each."""
    output = folder / "load"
    with output.open("wb") as file:
        started = time.monotonic()
        env = dict(server.load_env)
        generator = subprocess.Popen(server.load, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env)
        try:
            status = generator.wait(server.load_timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"the load did not end within {server.load_timeout_s:.0f} s") from None
        finally:
            generator.kill()
            generator.wait()
        load_s = time.monotonic() - started
    if status != 0:
        said = tail(output)
        raise ServerFailed(f"the load ended with status {status}" + (f": {said}" if said else ""))
    if not [pid for pid in tree.descendants(running.pid) if tree.alive(pid)]:
        raise ServerFailed("the server ended under the load")
    said = output.read_text(errors="replace")
    name, figures = load.read(said)
    if server.requests_from:
        found = re.search(server.requests_from, said, re.MULTILINE)
        if found is None or not (count := found[1].replace(",", "")).isdecimal() or int(count) == 0:
            wanted = f"--requests-from '{server.requests_from}': expected a number of requests"
            raise ServerFailed(f"{wanted} in what the load prints: {tail(output) or 'nothing'}")
        figures[load.RATE] = int(count) / load_s
    seen: dict[str, object] = {"load_s": load_s, "generator": name, "figures": figures}
    seen["after_kib"] = tree.resident_kib(tree.descendants(running.pid))
    if idle and server.idle_s > 0:
        running.ended(server.idle_s)
        seen["idle_kib"] = tree.resident_kib(tree.descendants(running.pid))
    return seen


def _stop(server: Server, running: Running, within_s: float) -> list[str]:
    """Asks the server to end, and what forked away too. Ends them if they do not."""
    notes = []
    first = [pid for pid in tree.descendants(running.pid) if tree.alive(pid)][:1]
    for pid in first:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, server.stop)
    deadline = time.monotonic() + within_s
    while any(tree.alive(pid) for pid in tree.descendants(running.pid)):
        if time.monotonic() > deadline:
            notes.append(f"the server did not end within {within_s:.0f} s of {server.stop.name} and was killed")
            break
        if running.ended(POLL_S):
            return notes
    running.process.terminate()  # the launcher kills what is left and reports
    return notes
