"""Runs a program with libfreestone's search for lost blocks and reads what it found."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freestone_lab.core import outputs
from freestone_lab.core.errors import UserError
from freestone_lab.flamegraph.model import Frame, Mapping, Profile, Sample
from freestone_lab.heap import attach, runner, watch
from freestone_lab.heap.symbolize import by_place, symbolize

SCHEMA = "freestone-leaks/1"
SAMPLED_MEAN = 64 * 1024  # bytes between samples: enough to find what grows, cheap enough for servers


@dataclass(frozen=True)
class Place:
    """Lost blocks that one call stack allocated. For sampled blocks these are estimates."""

    blocks: int
    size: int
    stack: tuple[Frame, ...]  # innermost first


@dataclass(frozen=True)
class Leaks:
    """What one process lost."""

    process: int
    exact: bool
    sample_bytes: int
    lost_blocks: int
    lost_bytes: int
    reachable_blocks: int
    reachable_bytes: int
    reason: str  # why nothing was found, "" otherwise
    places: list[Place]
    notes: list[str]


@dataclass(frozen=True)
class Searched:
    processes: list[Leaks]
    exit_status: int  # of the program, as a shell shows it
    notes: list[str] = field(default_factory=list)  # where no search was possible, and why

    @property
    def found(self) -> bool:
        return any(p.lost_blocks > 0 for p in self.processes)


def read(text: str, root: str = "") -> Leaks:
    """A report that libfreestone wrote, with its addresses resolved by the files below `root`."""
    try:
        raw: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the leak report is not JSON: {error}") from error
    if raw.get("schema") != SCHEMA:
        raise UserError(f"the leak report has the schema '{raw.get('schema')}'; expected {SCHEMA}")
    mappings = [
        Mapping(int(m["start"], 16), int(m["end"], 16), int(m["offset"], 16), m["path"], m["build_id"])
        for m in raw["mappings"]
    ]

    def frame(given: str | dict[str, Any]) -> Frame:
        if isinstance(given, dict):  # a call of Python, which is named already
            return Frame(given["function"], given["file"], given["line"])
        inside = int(given, 16) - 1  # a return address: the call lies before it
        path = next((m.path for m in mappings if m.start <= inside < m.limit), "")
        return Frame(module=path, address=inside)

    stacks: list[Sample] = []
    for site in raw["sites"]:
        stacks.append((tuple(map(frame, reversed(site["frames"]))), (int(site["blocks"]), int(site["bytes"]))))
    types = [("lost_objects", "count"), ("lost_space", "bytes")]
    profile = by_place(symbolize(Profile(types, stacks, mappings=mappings), root))
    return Leaks(
        raw["process"],
        raw["mode"] == "exact",
        raw["sample_bytes"],
        raw["lost"]["blocks"],
        raw["lost"]["bytes"],
        raw["reachable"]["blocks"],
        raw["reachable"]["bytes"],
        raw.get("reason", ""),
        [Place(values[0], values[1], stack[::-1]) for stack, values in profile.samples],
        profile.notes,
    )


def run(command: Sequence[str], *, exact: bool, seconds: float | None = None) -> Searched:
    """Runs `command` to its end, at most `seconds`. Returns its report and those of its children that ended by exit.

    If the time, Ctrl-C, SIGTERM or SIGHUP ends a process, the search comes first.
    """
    prepared = runner.prepare(command, stats=False, hardened=False)
    with outputs.Scratch("leaks") as folder:
        mode = "leak:exact" if exact else f"leak:report,prof_sample_bytes:{SAMPLED_MEAN}"
        mode = f"{mode},leak_file:{folder}/leaks.%p,{attach.ANSWERS_WHILE_IDLE}"
        env = runner.visible_to_python(prepared.env)
        env[runner.CONF] = ",".join(x for x in (env.get(runner.CONF, ""), mode) if x)

        def last_look(pids: list[int]) -> None:
            for pid, text in attach.ask_each(pids, attach.Errand.write_leaks, 0, attach.LAST_LOOK_S).items():
                (Path(folder) / f"leaks.{pid}").write_bytes(text)

        done = watch.run(prepared.argv, prepared.program, env, last_look, seconds)
        written = sorted(Path(folder).iterdir(), key=lambda p: (p.stat().st_mtime_ns, p.name))
        processes = [read(path.read_text(errors="surrogateescape")) for path in written]
    if not processes:
        return Searched([], done.status or 2, [done.left_no("leak report", command[0])])
    return Searched(processes, done.status)


def look(pids: Sequence[int], seconds: float | None) -> Searched:
    """What running processes lost of the blocks that they allocated during the look (attach.look_at)."""

    def found(look: attach.Look) -> Leaks:
        return read(look.process.leaks().decode(errors="surrogateescape"), f"/proc/{look.process.pid}/root")

    processes, refused = attach.look_at(pids, SAMPLED_MEAN, seconds, found)
    return Searched(processes, 0, refused)


def summary(searched: Searched, depth: int) -> list[str]:
    """The reports as lines, for the processes that lost something. If none did, one line for all."""
    notes = [f"note: {note}" for note in searched.notes]
    if not searched.processes:
        return notes
    losing = [process for process in searched.processes if process.places]
    if losing:
        return [line for process in losing for line in describe(process, depth)] + notes
    largest = max(searched.processes, key=lambda process: process.reachable_blocks)
    lines = describe(largest, depth)
    if len(searched.processes) > 1:
        lines.append(f"{len(searched.processes) - 1} more processes lost nothing")
    return lines + notes


def describe(leaks: Leaks, depth: int) -> list[str]:
    """The report of one process as lines of text."""
    about = "" if leaks.exact else "about "
    if not leaks.places:
        return [f"process {leaks.process}: nothing lost: {leaks.reason}", *leaks.notes]
    lines = [
        f"process {leaks.process}: {about}{leaks.lost_bytes:,} bytes in {leaks.lost_blocks:,} blocks lost, "
        f"from {len(leaks.places)} places; "
        f"{leaks.reachable_bytes:,} bytes in {leaks.reachable_blocks:,} blocks reachable"
    ]
    for place in leaks.places:
        lines.append(f"  {about}{place.size:,} bytes in {place.blocks:,} blocks allocated by")
        for frame in place.stack[:depth]:
            lines.append(f"    {_frame_text(frame)}")
        if len(place.stack) > depth:
            lines.append(f"    and {len(place.stack) - depth} more calls")
    return lines + [f"note: {note}" for note in leaks.notes]


def _frame_text(frame: Frame) -> str:
    if not frame.function:
        return f"{Path(frame.module).name or 'unknown'} {frame.address:#x}"
    where = f" ({frame.file}:{frame.line})" if frame.file else f" ({Path(frame.module).name})" if frame.module else ""
    return f"{frame.function}{where}"
