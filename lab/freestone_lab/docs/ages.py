"""Which version and code the figures of the documents are of.

A page names the version of each result that it cites by path. No text follows from what has changed in the tree since,
so a change needs no new results; a release needs results of its own version and code.
"""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from freestone_lab.core import measured
from freestone_lab.docs.pages import wrapped

CITED = re.compile(r"docs/results/[\w./-]+\.(?:json(?:\.gz)?|xml)")
NAMED = re.compile(r"of version ([\w.-]*\w)")
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


def _of(root: Path, path: Path) -> str:
    commit = str(_stamp(root / path).get("commit") or "").removesuffix("+")
    return f"of version {version(root, path)}{f', commit {commit}' if commit else ''}"


def note(root: Path, *results: Path) -> str:
    """What a page says beside the figures of these results."""
    files: dict[str, list[str]] = {}
    for path in results:
        files.setdefault(_of(root, path), []).append(f"`{path}`")
    shown = "; ".join(f"{of} ({', '.join(names)})" for of, names in files.items())
    return wrapped(f"These figures are {shown}.")


def unnamed(root: Path) -> list[str]:
    """One line for each citation whose version the page does not name."""
    lines = []
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        text = " ".join(page.read_text(encoding="utf-8").split())
        for cited in sorted(set(CITED.findall(text))):
            if (root / cited).is_file() and version(root, Path(cited)) not in NAMED.findall(text):
                lines.append(f"{page.relative_to(root)} cites {cited} and does not say: {_of(root, Path(cited))}")
    return lines


def other_than(root: Path, wanted: str) -> list[str]:
    """One line for each stored result that is not of this version or not of this tree's code."""
    found = []
    for path in sorted(path.relative_to(root) for path in (root / "docs/results").rglob("*")):
        if CITED.fullmatch(str(path)):
            other_code = "" if of_this_code(root, path) else " and of other code than this tree"
            if other_code or version(root, path) != wanted:
                found.append(f"{path} is {_of(root, path)}{other_code}")
    return found
