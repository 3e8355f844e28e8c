"""Whether the figures of the documents are of this tree's code.

A page cites a result by its path. If the result is of other code, the page must say of which version it is; a result of
this version must be of this code.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from freestone_lab.core import measured, paths

CITED = re.compile(r"docs/results/[\w./-]+\.(?:json(?:\.gz)?|xml)")
UNSTAMPED = "0.1.0"  # the version of results that name no code
# What a result measures besides the allocator, by a part of its name.
ALSO = {"traces": "traces", "full": "workloads", "reuse": "workloads", "bench": "workloads", "recording": "recorder"}


@cache
def _stamp(path: Path) -> dict[str, Any]:
    """`version`, `code` and `commit` of a stored result, as far as it says them."""
    data = path.read_bytes()
    if path.suffix == ".xml":
        said = {at.get("name"): at.get("value", "") for at in ElementTree.fromstring(data).iter("property")}
        return {"version": said.get("version"), "code": json.loads(said.get("code", "null"))}
    found = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    said = {"version": found.get("version"), "code": found.get("code"), "commit": found.get("commit")}
    fingerprint = found.get("fingerprint") or {}
    return {**said, "version": fingerprint.get("lab", said["version"]), **fingerprint}


def of_this_code(root: Path, path: Path) -> bool:
    """Whether the result below docs/results measured this tree."""
    parts = {"allocator", *(part for word, part in ALSO.items() if word in path.name)}
    said = _stamp(root / path).get("code") or {}
    tree = measured.code(root)
    return all(said.get(part) == tree.get(part) for part in parts)


def version(root: Path, path: Path) -> str:
    return str(_stamp(root / path).get("version") or UNSTAMPED)


def note(root: Path, path: Path) -> str:
    """What a page says beside figures of another version; "" for those of this tree's code."""
    if of_this_code(root, path):
        return ""
    commit = str(_stamp(root / path).get("commit") or "").removesuffix("+")
    return f"These figures are of version {version(root, path)}{f', commit {commit}' if commit else ''}."


def stale(root: Path) -> list[str]:
    """One line for each citation that a reader would take for this tree's, and is not."""
    lines = []
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        text = " ".join(page.read_text(encoding="utf-8").split())
        for cited in sorted(set(CITED.findall(text))):
            path = Path(cited)
            if not (root / path).is_file() or of_this_code(root, path):
                continue
            of = version(root, path)
            if of == paths.version() or f"of version {of}" not in text:
                lines.append(f"{page.relative_to(root)} cites {cited} of version {of} and of other code than this tree")
    return lines
