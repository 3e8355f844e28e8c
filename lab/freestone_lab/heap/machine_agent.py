"""The agent of a machine: it serves the figures of every process under libfreestone, and pushes heap profiles.

It finds processes by their live page, even in containers of this machine, and reads the memory of the others if it is
to. Ended processes are gone at the next look. Standard library only; profiles need the packages that read them.
"""

import contextlib
import http.server
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.heap import attach, metrics, names, snapshot
from freestone_lab.heap.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PUSH_TIMEOUT_S = 30.0
PROC = Path("/proc")  # whose processes the agent sees


def shown() -> dict[int, Snapshot]:
    """The processes of this machine that show a live page, by their number on the machine."""
    found = {}
    for pid in _numbers():
        own_number = (names.status(pid, "NSpid") or [str(pid)])[-1]
        with contextlib.suppress(UserError, OSError):  # it ended meanwhile, has not written yet, or is another user's
            page = PROC / f"{pid}/root/dev/shm/{snapshot.PREFIX}{own_number}"
            found[pid] = replace(snapshot.from_page(page), program=names.command_line(pid))
    return found


def _numbers() -> list[int]:
    return sorted(int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def _serves(pid: int) -> bool:
    try:
        return "libfreestone" in (PROC / f"{pid}/maps").read_text(errors="surrogateescape")
    except OSError:
        return False


@dataclass
class Found:
    """The processes that were read, by their number, and why others under libfreestone were not."""

    read: dict[int, Snapshot]
    unread: dict[int, str]


def processes(all_: bool) -> Found:
    """What live pages show, or the memory of all processes under libfreestone."""
    found = Found(shown(), {})
    for pid in filter(_serves, _numbers() if all_ else ()):
        try:
            found.read[pid] = attach.Process(pid).statistics()
        except UserError as error:
            if pid not in found.read:
                found.unread[pid] = str(error)
    return found


def scrape(all_: bool = False, complain: Callable[[str], None] = lambda _text: None) -> str:
    found = processes(all_)
    for reason in found.unread.values():
        complain(reason)
    unread = ((pid, names.command_line(pid)) for pid in found.unread)
    return metrics.render(
        ((metrics.service_of_process(pid, s.program), s) for pid, s in found.read.items()),
        ((metrics.service_of_process(pid, line), line) for pid, line in unread),
    )


class Handler(http.server.BaseHTTPRequestHandler):
    all_ = False

    def do_GET(self) -> None:
        if self.path.split("?")[0] not in ("/metrics", "/"):
            self.send_error(404, "expected /metrics")
            return
        body = scrape(self.all_).encode() if self.path != "/" else b"freestone agent: /metrics\n"
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Writes nothing, because a line per scrape is noise."""


def serve(address: str, port: int, all_: bool) -> http.server.ThreadingHTTPServer:
    """A server that listens. The caller calls serve_forever. UserError names an address that it cannot have."""
    try:
        return http.server.ThreadingHTTPServer((address, port), type("Handler", (Handler,), {"all_": all_}))
    except OSError as error:
        raise UserError(f"--listen {address}:{port}: {error.strerror}") from error


def ingest(url: str, service: str, program: str, profile: bytes, since: float, until: float) -> None:
    """Pushes one pprof file to a store that speaks Pyroscope's /ingest. UserError if the store refuses it."""
    label = "".join(c if c.isalnum() or c in "._-" else "_" for c in service)
    name = f"{label}{{program={urllib.parse.quote(program, safe='')}}}"
    query = urllib.parse.urlencode({"name": name, "from": int(since), "until": int(until), "format": "pprof"})
    kinds = {
        kind: {"units": unit, "aggregation": how, "sampled": False}
        for kind, unit, how in (
            ("inuse_objects", "objects", "average"),
            ("inuse_space", "bytes", "average"),
            ("alloc_objects", "objects", "sum"),
            ("alloc_space", "bytes", "sum"),
        )
    }
    boundary = uuid.uuid4().hex
    parts = (("profile", profile), ("sample_type_config", json.dumps(kinds).encode()))
    body = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{part}"; filename="{part}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + content
        + b"\r\n"
        for part, content in parts
    )
    request = urllib.request.Request(
        f"{url.rstrip('/')}/ingest?{query}",
        data=body + f"--{boundary}--\r\n".encode(),
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PUSH_TIMEOUT_S):
            pass
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise UserError(f"--push {url}: {error}") from error


def push_profiles(url: str, every_s: float, stop: threading.Event, complain: Callable[[str], None], all_: bool) -> None:
    """Profiles each process, one period after the other, and pushes what was found."""
    from freestone_lab.flamegraph.pprof import encode
    from freestone_lab.heap import profiling

    while not stop.is_set():
        since = time.time()
        with contextlib.ExitStack() as looks:
            looked_at = []
            for pid, seen in processes(all_).read.items():
                try:
                    look = attach.Look(attach.Process(pid), profiling.SAMPLE_BYTES)
                    looked_at.append((looks.enter_context(look), seen))
                except UserError as error:
                    complain(str(error))
            until = time.monotonic() + every_s
            while time.monotonic() < until and not stop.wait(0.05):
                attach.poll([look for look, _ in looked_at])
            for look, seen in looked_at:
                try:
                    look.must_have_begun()
                    profile = encode(profiling.read_now(look.process), "inuse_space")
                    service = metrics.service_of_process(look.process.pid, seen.program)
                    ingest(url, service, names.program(seen.program), profile, since, time.time())
                except UserError as error:
                    complain(str(error))
