"""What a program is, from one run of it: batch, server, daemon, wrapper, idle; with an allocator of its own or not.

A `Watcher` looks at the tree during the first run. It refuses a program that never ends by itself, within seconds and
with an error that says what to type instead.
"""

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from freestone_lab.core import units
from freestone_lab.core.errors import UserError
from freestone_lab.measure import tree
from freestone_lab.measure.tree import Listening

Kind = Literal["batch", "server", "daemon", "idle"]

QUIET_S = 1.5  # a server that listens and does nothing for so long waits for clients
IDLE_S = 20.0
LISTENS_FOR_S = 30.0  # and one that is busy but serves for so long will not end either
LEAST_CPU_S = 0.05
LINGERING = "lingering"  # the launcher's name once the program itself has ended and something that it started has not
FAMILIES = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc", "snmalloc", "hoard", "scudo", "freestone")
# What loads a well-known server: the words after --load, with the port in place of {port}.
LOADS = {
    "redis-server": "redis-benchmark -p {port} -n 200000 -P 8 -t set,get --csv",
    "valkey-server": "redis-benchmark -p {port} -n 200000 -P 8 -t set,get --csv",
    "nginx": "wrk -t1 -c16 -d3s --latency http://127.0.0.1:{port}/",
    "postgres": "pgbench -p {port} -c 4 -T 3 postgres",
    "memcached": "memtier_benchmark -P memcache_text -p {port} --test-time 3",
}
ANY_LOAD = "wrk -t1 -c16 -d3s --latency http://127.0.0.1:{port}/"


@dataclass
class Look:
    """What one run showed. `worker` is the process that does the work, if that is not the program itself."""

    program: str
    kind: Kind = "batch"
    seconds: float = 0.0
    threads: int = 1
    processes: int = 1
    listening: Listening = field(default_factory=Listening)
    worker: str | None = None
    own: str | None = None  # the file of an allocator that the program brings along
    remarks: list[str] = field(default_factory=list)

    def words(self) -> str:
        """One line: what it is, how long it takes, who serves malloc, and what is odd about it."""
        size = f"{self.threads} threads" if self.threads > 1 else "1 thread"
        if self.processes > 1:
            size += f" in {self.processes} processes"
        if self.kind == "batch":
            parts = [f"a program that ends, after {self.seconds:.2g} s, with {size}"]
        else:
            serving = f" on {self.listening.words()}" if self.listening else ""
            parts = [f"a {self.kind}{serving}, with {size}"]
        if self.worker:
            parts.append(f"a wrapper: {self.worker} does the work")
        parts.append(f"brings {allocator_name(self.own)}" if self.own else "malloc by glibc")
        return f"{self.program}: {'; '.join([*parts, *self.remarks])}"


def allocator_name(path: str) -> str:
    """The family of an allocator's library, else the library's name."""
    name = Path(path).name
    return next((f for f in FAMILIES if f in name), name.removeprefix("lib").split(".so")[0])


class NotBatch(UserError):
    """The program does not end by itself. `look` says what it is, and the message says what to type."""

    def __init__(self, look: Look, message: str) -> None:
        super().__init__(message)
        self.look = look


def advice(argv: Sequence[str], listening: Listening) -> str:
    """The line that measures this server."""
    name = Path(argv[0]).name
    port = listening.ports[0] if listening.ports else 0
    ready = str(port) if port else "'a line that it prints when it is ready'"
    load = LOADS.get(name, ANY_LOAD).format(port=port or "PORT")
    return f"freestone advise --server {shlex.quote(shlex.join(argv))} --ready {ready} --load '{load}'"


class Watcher:
    """Call it with the launcher's pid during the first run. It raises NotBatch if the run will not end."""

    def __init__(self, argv: Sequence[str], image: str) -> None:
        self.argv, self.image = argv, os.path.realpath(image)
        self.look = Look(Path(argv[0]).name)
        self.begun = self.worked = time.monotonic()
        self.listens_since: float | None = None
        self.cpu: dict[int, tuple[str, float]] = {}
        self.total = 0.0

    def __call__(self, launcher: int) -> None:
        now = time.monotonic()
        pids = [p for p in tree.descendants(launcher) if tree.alive(p)]
        for pid in pids:
            self.cpu[pid] = (tree.executable(pid) or self.cpu.get(pid, ("",))[0], tree.cpu_seconds([pid]))
        self.look.processes = max(self.look.processes, len(pids))
        total = sum(seconds for _, seconds in self.cpu.values())
        if total > self.total + 0.01:
            self.total, self.worked = total, now
        found = tree.listening(pids)
        if found:
            self.look.listening = found
            self.listens_since = self.listens_since or now
            self._judge_server(tree.name(launcher) == LINGERING, now)
        elif now - self.worked > IDLE_S:
            self.look.kind = "idle"
            raise NotBatch(
                self.look,
                f"'{self.argv[0]}' neither ends nor works: it has used no processor for {units.words(IDLE_S)} and "
                "listens nowhere; give it something to do, or a way to end",
            )

    def _judge_server(self, forked: bool, now: float) -> None:
        quiet = now - self.worked > QUIET_S
        if not forked and not quiet and now - (self.listens_since or now) < LISTENS_FOR_S:
            return
        self.look.kind = "daemon" if forked else "server"
        how = "forks away and serves" if forked else "is a server: it serves"
        raise NotBatch(
            self.look,
            f"'{self.argv[0]}' {how} {self.look.listening.words()} and does not end by itself; measure it under load:\n"
            f"    {advice(self.argv, self.look.listening)}",
        )

    def finish(self, seconds: float, threads: int) -> Look:
        """What the whole run showed."""
        self.look.seconds, self.look.threads = seconds, threads
        by_program: dict[str, float] = {}
        for program, used in self.cpu.values():
            by_program[program] = by_program.get(program, 0.0) + used
        busiest = max(by_program, key=lambda p: by_program[p], default="")
        busy = by_program.get(busiest, 0.0)
        if busiest and busiest != self.image and busy > max(LEAST_CPU_S, sum(by_program.values()) / 2):
            self.look.worker = busiest
        return self.look
