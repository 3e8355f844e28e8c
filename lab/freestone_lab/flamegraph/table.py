"""A profile as a table: the functions that hold most, for the terminal and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from freestone_lab.core import units
from freestone_lab.flamegraph.model import Profile, by_python, of_processes
from freestone_lab.flamegraph.view import frame_key

SCHEMA = "freestone-profile/1"
MOST = 12


@dataclass
class Function:
    name: str
    file: str
    module: str
    own: list[int] = field(default_factory=list)  # by sample type: what it allocated itself
    total: list[int] = field(default_factory=list)  # and with what it called


def functions(profile: Profile) -> list[Function]:
    found: dict[tuple[str, str, bool], Function] = {}
    for stack, values in profile.samples:
        for place, frame in enumerate(stack):
            key = frame_key(frame)
            if key not in found:
                empty = [0] * len(profile.sample_types)
                found[key] = Function(key[0], frame.file, frame.module, list(empty), list(empty))
            one = found[key]
            if place == len(stack) - 1:
                one.own = [a + b for a, b in zip(one.own, values, strict=True)]
            if all(frame_key(other) != key for other in stack[:place]):  # recursion counts once
                one.total = [a + b for a, b in zip(one.total, values, strict=True)]
    return list(found.values())


def lines(profiles: Sequence[Profile], view: str) -> list[str]:
    """The processes, if there are several, and of the first, or of the last over time, what holds most."""
    profile = by_python(profiles[0 if of_processes(profiles) else -1])
    at = profile.place(view)
    found = sorted(functions(profile), key=lambda f: (-f.own[at], -f.total[at]))
    if not found:
        return ["nothing was sampled"]
    name, shown = profile.sample_types[at][0], []
    if of_processes(profiles):
        shown = [f"{name} of {len(profiles)} processes"]
        shown += [f"  {_amount(p, p.place(view), p.total(p.place(view))):>10}  {p.label}" for p in profiles[:MOST]]
        shown += [f"  and {len(profiles) - MOST} more"] if len(profiles) > MOST else []
    amount = partial(_amount, profile, at)
    of = f" in {profile.label}" if shown else ""
    shown += [f"{name}: {amount(profile.total(at))}{of}; itself, with what it calls, function"]
    shown += [f"  {amount(f.own[at]):>10} {amount(f.total[at]):>10}  {f.name}" for f in found[:MOST]]
    return [*shown, *([f"  and {len(found) - MOST} more"] if len(found) > MOST else [])]


def _amount(profile: Profile, at: int, value: int) -> str:
    return units.size_words(value) if profile.sample_types[at][1] == "bytes" else f"{value:,}"


def as_json(profile: Profile) -> dict[str, Any]:
    profile = by_python(profile)
    names = [name for name, _ in profile.sample_types]
    return {
        "schema": SCHEMA,
        "label": profile.label,
        "time": profile.time,
        "types": [{"name": name, "unit": unit} for name, unit in profile.sample_types],
        "notes": profile.notes,
        "functions": [
            {
                "function": f.name, "file": f.file, "module": f.module, "self": dict(zip(names, f.own, strict=True)),
                "total": dict(zip(names, f.total, strict=True)),
            }
            for f in functions(profile)
        ],
    }  # fmt: skip
