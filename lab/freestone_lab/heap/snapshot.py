"""Reads what libfreestone says about a heap: a process's live page, or a statistics file in JSON or OpenMetrics."""

import contextlib
import json
import os
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from freestone_lab.core.errors import UserError
from freestone_lab.heap import names
from freestone_lab.measure import tree

PAGES = Path("/dev/shm")
PREFIX = "freestone-"
HEADER = struct.Struct("<8sIIQ")  # magic, sequence (odd while being written), bytes of text, milliseconds
TEXT_AT = 64
MAGIC = b"FREESTN1"
ATTEMPTS = 200

# What charged_bytes is made of: what people call it, and the figure.
PARTS = {
    "live": "live_bytes",
    "thread caches": "thread_cached_bytes",
    "run caches": "run_cached_bytes",
    "slabs, free": "slab_free_bytes",
    "dirty": "dirty_bytes",
    "metadata": "metadata_bytes",
}


@dataclass(frozen=True)
class SizeClass:
    bytes: int
    live: int
    cached: int


@dataclass(frozen=True)
class Thread:
    id: int
    cached_bytes: int
    capacity_bytes: int
    slow_paths: int


SIZE_CLASS = [one.name for one in fields(SizeClass)]
THREAD = [one.name for one in fields(Thread)]


@dataclass(frozen=True)
class Snapshot:
    """The statistics of one process at one time. `updated_ms` is on the machine's monotonic clock."""

    pid: int
    program: str
    version: str
    build: str
    updated_ms: int
    figures: dict[str, float]
    system_calls: dict[str, int] = field(default_factory=dict)
    classes: tuple[SizeClass, ...] = ()
    threads: tuple[Thread, ...] = ()

    def figure(self, name: str) -> int:
        return int(self.figures.get(name, 0))

    def parts(self) -> list[tuple[str, int]]:
        """What the charged bytes are made of; their sum is charged_bytes."""
        return [(label, self.figure(name)) for label, name in PARTS.items()]


def from_json(text: str, source: str) -> Snapshot:
    try:
        data: dict[str, Any] = json.loads(text)
        data = data.get("freestone", data) if isinstance(data.get("freestone"), dict) else data
        return Snapshot(
            pid=int(data["pid"]),
            program=str(data["program"]),
            version=str(data["freestone"]),
            build=str(data["build"]),
            updated_ms=int(data["time_ms"]),
            figures={name: float(value) for name, value in data["figures"].items()},
            system_calls={name: int(value) for name, value in data["system_calls"].items()},
            classes=tuple(SizeClass(*(row[name] for name in SIZE_CLASS)) for row in data["classes"]),
            threads=tuple(Thread(*(row[name] for name in THREAD)) for row in data["threads"]),
        )
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"'{source}': expected statistics of libfreestone in JSON or OpenMetrics ({error})") from error


_SAMPLE = re.compile(r"^freestone_(\w+)\{([^}]*)\} ([0-9.]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def from_openmetrics(text: str, source: str) -> Snapshot:
    figures: dict[str, float] = {}
    calls: dict[str, int] = {}
    live: dict[int, int] = {}
    cached: dict[int, int] = {}
    process = {"pid": "0", "program": ""}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        labels, value = dict(_LABEL.findall(match[2])), float(match[3])
        name = match[1].removesuffix("_total")
        process.update({key: labels[key] for key in process if key in labels})
        if name == "system_calls":
            calls[labels.get("call", "")] = int(value)
        elif name in ("class_live_bytes", "class_cached_bytes") and "size" in labels:
            (live if name == "class_live_bytes" else cached)[int(labels["size"])] = int(value)
        else:
            figures[name] = value
    if "live_bytes" not in figures:
        raise UserError(f"'{source}': expected statistics of libfreestone in JSON or OpenMetrics; it has no live_bytes")
    classes = tuple(SizeClass(size, live[size] // size, cached.get(size, 0) // size) for size in sorted(live))
    return Snapshot(int(process["pid"]), process["program"], "", "", 0, figures, calls, classes)


def from_file(path: Path) -> Snapshot:
    try:
        text = path.read_text(errors="surrogateescape")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}': cannot be read ({getattr(error, 'strerror', None) or error})") from error
    return from_json(text, str(path)) if text.lstrip().startswith("{") else from_openmetrics(text, str(path))


def page_path(pid: int) -> Path:
    return PAGES / f"{PREFIX}{pid}"


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def from_process(pid: int) -> Snapshot:
    """The live page of a process of this user."""
    path = page_path(pid)
    if not is_running(pid):
        with contextlib.suppress(OSError):  # there is none, or it is another user's
            path.unlink()
            raise UserError(f"process {pid} has ended; what it last showed is removed")
        raise UserError(_no_page(pid))
    try:
        snapshot = from_page(path)
    except FileNotFoundError:
        raise UserError(_no_page(pid)) from None
    except PermissionError:
        raise UserError(f"process {pid} belongs to another user: only its owner may look at {path}") from None
    if _is_left_behind(snapshot, pid):
        raise UserError(_no_page(pid))
    return replace(snapshot, program=names.command_line(pid) or snapshot.program)


def _no_page(pid: int) -> str:
    return f"process {pid} {'shows no live page' if is_running(pid) else 'has ended, or the number is wrong'}"


def _is_left_behind(snapshot: Snapshot, pid: int) -> bool:
    """By a process that was killed and had the same number."""
    return snapshot.updated_ms < 1000 * (_start_seconds(pid) - 1)


def keeps_page(pid: int) -> bool:
    """Whether the process keeps a live page by itself. A page that was left behind is removed."""
    path = page_path(pid)
    try:
        if not _is_left_behind(from_page(path), pid):
            return True
        path.unlink()
    except FileNotFoundError:
        return False
    except (OSError, UserError):
        return True  # from_process says what is wrong with it
    return False


def _start_seconds(pid: int) -> float:
    """When a process began, by the monotonic clock; earlier by the time that the machine has slept since."""
    words = tree.stat(pid)
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return int(words[19]) / tree.TICKS - asleep if words else 0.0


def from_page(path: Path) -> Snapshot:
    """Reads a live page, and reads it again if it changed meanwhile. OSError if it is missing."""
    for _ in range(ATTEMPTS):
        raw = path.read_bytes()
        again = path.read_bytes()
        if len(raw) < TEXT_AT or raw[: len(MAGIC)] != MAGIC:
            raise UserError(f"'{path}': expected a live page of libfreestone")
        _, sequence, length, updated_ms = HEADER.unpack_from(raw)
        if sequence % 2 == 0 and sequence > 0 and HEADER.unpack_from(again)[1] == sequence:
            snapshot = from_json(raw[TEXT_AT : TEXT_AT + length].decode(), str(path))
            return replace(snapshot, updated_ms=updated_ms)
        time.sleep(0.001)
    raise UserError(f"'{path}': the page never stood still; did its process end while it was written?")


def running() -> Iterator[Snapshot]:
    """All processes of this user that show a live page. Pages of processes that were killed are removed."""
    for path in sorted(PAGES.glob(f"{PREFIX}*")):
        number = path.name.removeprefix(PREFIX)
        if not number.isdecimal() or not os.access(path, os.R_OK):
            continue
        with contextlib.suppress(UserError):  # it ended, or has not written yet
            yield from_process(int(number))


def now_ms() -> int:
    return int(1000 * time.clock_gettime(time.CLOCK_MONOTONIC))


def age_seconds(snapshot: Snapshot) -> float:
    """How old a live page is."""
    return max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - snapshot.updated_ms / 1000)


def bytes_text(count: float) -> str:
    """Bytes in words, such as 1.5 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
