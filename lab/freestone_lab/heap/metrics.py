"""The figures of libfreestone as metrics: several processes of one service added up, in Prometheus' text format."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from freestone_lab.heap import names
from freestone_lab.heap.snapshot import Snapshot

# As libfreestone names, types and explains them.
FIGURES = {
    "live_bytes": ("gauge", "Handed out and not yet freed, counted by block size."),
    "live_blocks": ("gauge", "Blocks handed out and not yet freed."),
    "thread_cached_bytes": ("gauge", "Free blocks in thread caches."),
    "run_cached_bytes": ("gauge", "Free runs kept for reuse."),
    "slab_free_bytes": ("gauge", "Free blocks and tails inside slabs."),
    "unbacked_bytes": ("gauge", "Part of slab_free_bytes without memory: pages and guards."),
    "dirty_bytes": ("gauge", "Free spans with memory behind them."),
    "clean_bytes": ("gauge", "Retained: free spans whose memory is with the kernel."),
    "large_bytes": ("gauge", "Runs above the size classes, part of live."),
    "large_blocks": ("gauge", "Runs above the size classes."),
    "mapped_bytes": ("gauge", "Blocks with a mapping of their own, part of live."),
    "mapped_blocks": ("gauge", "Blocks with a mapping of their own."),
    "heap_object_bytes": ("gauge", "Spans held by heap objects."),
    "heap_objects": ("gauge", "Heap objects that exist."),
    "metadata_bytes": ("gauge", "Accessible for the allocator's own records."),
    "metadata_resident_bytes": ("gauge", "Records that are in memory."),
    "committed_bytes": ("gauge", "Accessible heap without own mappings."),
    "charged_bytes": ("gauge", "In use, dirty, mapped and metadata: what limits are about."),
    "peak_bytes": ("gauge", "The highest charged_bytes so far."),
    "reserved_bytes": ("gauge", "Address space."),
    "resident_bytes": ("gauge", "Resident set of the process."),
    "peak_resident_bytes": ("gauge", "The highest resident set so far."),
    "purged_bytes": ("counter", "Given back to the kernel."),
    "purge_calls": ("counter", "Times that memory was given back."),
    "purge_cost_ns": ("counter", "What giving back cost: calls, and faults of pages that were needed again."),
    "worked_ms": ("counter", "The time at work, or at rest, of which that may cost give_back_percent."),
    "purged_surplus_bytes": ("counter", "Given back: free spans beyond what is worth keeping."),
    "purged_decay_bytes": ("counter", "Given back: free spans that nobody needed for a while."),
    "purged_slabs_bytes": ("counter", "Given back: whole free pages inside slabs."),
    "purged_trim_bytes": ("counter", "Given back: because the program asked."),
    "purged_shortage_bytes": ("counter", "Given back: at a limit, under pressure, or because the kernel refused."),
    "purged_hardening_bytes": ("counter", "Given back: freed blocks that are sealed or cleared."),
    "unmapped_bytes": ("counter", "Given back: own mappings."),
    "taken_fresh_bytes": ("counter", "Spans taken that were never used before: their pages fault."),
    "taken_again_bytes": ("counter", "Spans taken whose memory went back before: their pages fault again."),
    "populated_bytes": ("counter", "Slabs whose pages were asked for in advance."),
    "mapped_total_bytes": ("counter", "Own mappings made."),
    "limit_soft_bytes": ("gauge", "The soft limit; 0 when there is none."),
    "limit_hard_bytes": ("gauge", "The hard limit; 0 when there is none."),
    "soft_limit_crossings": ("counter", "Spans taken above the soft limit."),
    "reclaims": ("counter", "Times that everything was given back because an allocation found no memory."),
    "failed_allocations": ("counter", "Allocations that returned null."),
    "pressure_reactions": (
        "counter",
        "Times that everything was given back because the machine or container was short.",
    ),
    "guard_mappings": ("gauge", "Mappings that guards make, where the kernel has no guard regions."),
    "guard_mappings_max": ("gauge", "The most that they may make; 0 where guards make none."),
    "threads": ("gauge", "Threads that hold a cache."),
}
SYSTEM_CALLS = "System calls made by the allocator."
PROCESSES = "Processes under libfreestone whose figures the agent reads."
UNREAD = "Processes under libfreestone that the agent may not or cannot read."
_UNIT = re.compile(r"([^/]+)\.(?:service|scope|slice)$")
_CONTAINER = re.compile(r"(?:^|[-/])([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?$")


def service_of(cgroup: str, program: str) -> str:
    """The service of a process, by the text of /proc/PID/cgroup: its container, its systemd unit, else its program."""
    paths = [line.split(":", 2)[2] for line in cgroup.splitlines() if line.count(":") >= 2]
    for path in sorted(paths, key=len, reverse=True):
        if found := _CONTAINER.search(path):
            return found[1]
    for path in sorted(paths, key=len, reverse=True):
        last = path.rstrip("/").rpartition("/")[2]
        if (unit := _UNIT.match(last)) and not last.endswith(".slice") and not last.startswith("session-"):
            return unit[1]
    return program


def service_of_process(pid: int, line: str) -> str:
    program = names.program(line)
    try:
        return service_of(Path(f"/proc/{pid}/cgroup").read_text(errors="surrogateescape"), program)
    except OSError:
        return program


def render(found: Iterable[tuple[str, Snapshot]], unread: Iterable[tuple[str, str]] = ()) -> str:
    """One sample per figure, service and program: the sum over the service's processes of that program.

    Limits of single processes add up to the service's limit. Their peaks add up to a bound on its peak.
    """
    groups: dict[tuple[str, str], list[Snapshot]] = defaultdict(list)
    for service, snapshot in found:
        groups[service, names.program(snapshot.program)].append(snapshot)
    lines: list[str] = []

    def family(name: str, kind: str, text: str) -> str:
        full = f"freestone_{name}" + ("_total" if kind == "counter" else "")
        lines.extend((f"# HELP {full} {text}", f"# TYPE {full} {kind}"))
        return full

    full = family("processes", "gauge", PROCESSES)
    lines.extend(f"{full}{_labels(group)} {len(members)}" for group, members in sorted(groups.items()))
    full = family("processes_unread", "gauge", UNREAD)
    counts = Counter((service, names.program(line)) for service, line in unread)
    lines.extend(f"{full}{_labels(group)} {counts[group]}" for group in sorted(groups.keys() | counts.keys()))
    for name, (kind, text) in FIGURES.items():
        full = family(name, kind, text)
        for group, members in sorted(groups.items()):
            lines.append(f"{full}{_labels(group)} {sum(member.figure(name) for member in members)}")
    full = family("system_calls", "counter", SYSTEM_CALLS)
    for group, members in sorted(groups.items()):
        for call in sorted({call for member in members for call in member.system_calls}):
            total = sum(member.system_calls.get(call, 0) for member in members)
            lines.append(f"{full}{_labels(group, call=call)} {total}")
    return "\n".join(lines) + "\n"


def _labels(group: tuple[str, str], **more: str) -> str:
    pairs = {"service": group[0], "program": group[1], **more}
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in pairs.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
