"""A process and all that it started, as /proc shows them: the members, what they serve, whether they work."""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core import signals

TICKS = os.sysconf("SC_CLK_TCK")
LISTENS = "0A"  # the state of a listening TCP socket in /proc/net/tcp
UNIX_LISTENS = 0x10000  # the flag of one in /proc/net/unix
descendants = signals.descendants


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def stat(pid: int) -> list[str]:
    """The words of /proc/PID/stat from the state on; none when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="surrogateescape").rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return stat(pid)[:1] not in ([], ["Z"], ["X"])


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes and of their children that have ended."""
    return sum(int(ticks) for pid in pids for ticks in stat(pid)[11:15]) / TICKS


def resident_kib(pids: Iterable[int]) -> float:
    """The memory that these processes hold together: each page that several share is counted once (PSS)."""
    kib = 0
    for pid in pids:
        with contextlib.suppress(OSError, AttributeError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(errors="surrogateescape")
            kib += int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])  # type: ignore[index]
    return float(kib)


def executable(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return None


def name(pid: int) -> str | None:
    """What the process calls itself, at most 15 characters."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="surrogateescape").rstrip("\n")
    except OSError:
        return None


def program_of(pid: int) -> str:
    """The program by the name under which it was started, which may be a link to its file; "" when it is gone.

    A process that writes a title over its arguments keeps what the kernel calls it.
    """
    with contextlib.suppress(OSError):
        started_as = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0])
        word = started_as.rpartition("/")[2].removeprefix("-")  # a login shell's
        if word and " " not in started_as and not word.endswith(":"):
            return word
    return name(pid) or ""


def mapped(pid: int) -> list[str]:
    """The files that the process maps."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [line[line.index("/") :] for line in lines if "/" in line]


@dataclass(frozen=True)
class Listening:
    """Where a process waits for others: TCP ports and paths of sockets."""

    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ports or self.sockets)

    def words(self) -> str:
        return ", ".join([*(f"port {p}" for p in self.ports), *self.sockets])


def _socket_inodes(pids: Iterable[int]) -> set[str]:
    inodes = set()
    for pid in pids:
        for entry in _listed(Path(f"/proc/{pid}/fd")):
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


def tcp_listeners() -> dict[str, int]:
    """Every listening TCP socket of this network namespace: inode -> port."""
    found = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text(errors="surrogateescape").splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS:
                    found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def listening(pids: Iterable[int]) -> Listening:
    """What these processes serve."""
    inodes = _socket_inodes(pids)
    if not inodes:
        return Listening()
    ports = {port for inode, port in tcp_listeners().items() if inode in inodes}
    sockets = set()
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[6] in inodes and int(fields[3], 16) & UNIX_LISTENS:
                sockets.add(fields[7])
    return Listening(tuple(sorted(ports)), tuple(sorted(sockets)))


def port_is_taken(port: int) -> bool:
    """Whether anybody listens on this TCP port."""
    return port in tcp_listeners().values()
