"""The page: profiles merged into one tree of calls, with values per profile, drawn by a script in the page itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from freestone_lab.core import outputs, theme
from freestone_lab.flamegraph.model import Frame, Profile, ProfileError, by_python, of_processes

TEMPLATES = Path(__file__).parent / "templates"


@dataclass
class Node:
    """A call in its place in the tree. `own` holds what was allocated right here, by profile and sample type."""

    frame: int
    own: list[list[int]]
    children: dict[int, Node] = field(default_factory=dict)


def common_types(profiles: Sequence[Profile]) -> list[tuple[str, str]]:
    """The sample types that every profile has. Raises ProfileError when there is none."""
    found = [t for t in profiles[0].sample_types if all(t in p.sample_types for p in profiles)]
    if not found:
        names = "; ".join(f"{p.label}: {', '.join(n for n, _ in p.sample_types)}" for p in profiles)
        raise ProfileError(f"the profiles share no sample type ({names})")
    return found


def frame_key(frame: Frame) -> tuple[str, str, bool]:
    """What makes two frames one: the function (or the bare address), its module or file, whether it was inlined."""
    name = frame.function or (
        f"{Path(frame.module).name}+{frame.address:#x}" if frame.module else f"{frame.address:#x}"
    )
    return name, frame.module or frame.file, frame.inlined


def payload(profiles: Sequence[Profile], compare: bool, view: str = "inuse_space") -> dict[str, object]:
    """What the page's script draws. If there are calls of Python, the first tree has only these."""
    types = common_types(profiles)
    python = [by_python(profile) for profile in profiles]
    kinds = {"all functions": profiles} if python == list(profiles) else {"Python": python, "all functions": profiles}
    return {
        "types": types,
        "profiles": [{"label": p.label, "time": p.time, "notes": p.notes} for p in profiles],
        "trees": [{"name": name, **tree(shown, types)} for name, shown in kinds.items()],
        "start": preferred(profiles, types, view),
        "compare": compare,
        "processes": of_processes(profiles) and not compare,
    }


def tree(profiles: Sequence[Profile], types: list[tuple[str, str]]) -> dict[str, object]:
    """Frames, and the tree of calls as parallel lists, parents before children."""
    frames: dict[tuple[str, str, bool], int] = {("all", "", False): 0}
    places: list[tuple[str, int]] = [("", 0)]
    root = Node(0, [[0] * len(types) for _ in profiles])
    for number, profile in enumerate(profiles):
        picked = [profile.sample_types.index(t) for t in types]
        for stack, values in profile.samples:
            node = root
            for frame in stack:
                key = frame_key(frame)
                ident = frames.setdefault(key, len(frames))
                if ident == len(places):
                    places.append((frame.file, frame.line))
                child = node.children.get(ident)
                if child is None:
                    child = node.children[ident] = Node(ident, [[0] * len(types) for _ in profiles])
                node = child
            for place, index in enumerate(picked):
                node.own[number][place] += values[index]
    parents: list[int] = []
    idents: list[int] = []
    own: list[list[list[int]]] = []
    waiting = [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        here = len(parents)
        parents.append(parent)
        idents.append(node.frame)
        own.append(node.own)
        waiting.extend((child, here) for child in node.children.values())
    return {
        "frames": [
            [name, module, int(inlined), file, line]
            for ((name, module, inlined), (file, line)) in zip(frames, places, strict=True)
        ],
        "parents": parents,
        "idents": idents,
        "own": own,
    }


def preferred(profiles: Sequence[Profile], types: list[tuple[str, str]], view: str) -> int:
    """The sample type to show first: `view`, else the last one that is not empty."""
    names = [name for name, _ in types]
    filled = [i for i, t in enumerate(types) if any(p.total(p.sample_types.index(t)) for p in profiles)]
    last = filled[-1] if filled else len(types) - 1
    return names.index(view) if view in names and names.index(view) in filled else last


def render_profiles(
    profiles: Sequence[Profile], title: str, *, compare: bool = False, view: str = "inuse_space"
) -> str:
    """The page as text. With `compare` it opens with the last profile against the first, otherwise with `view`."""
    if not profiles:
        raise ProfileError("no profile to show")
    data = json.dumps(payload(profiles, compare, view), separators=(",", ":")).replace("</", "<\\/")
    values = {
        "title": escape(title), "data": data, "light": theme.variables(False), "dark": theme.variables(True),
        "style": (TEMPLATES / "profile.css").read_text(), "script": (TEMPLATES / "profile.js").read_text(),
    }  # fmt: skip
    page = (TEMPLATES / "profile.html").read_text()
    return re.sub(r"\{\{ (\w+) \}\}", lambda name: values[name[1]], page)


def write_profiles(
    profiles: Sequence[Profile], path: Path, title: str, *, compare: bool = False, view: str = "inuse_space"
) -> None:
    """Writes one self-contained HTML file that shows `profiles`."""
    text = render_profiles(profiles, title, compare=compare, view=view)
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs.write_whole(path, text)
