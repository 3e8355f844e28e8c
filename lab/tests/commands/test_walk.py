"""`freestone compare` enters the files that docs/ARCHITECTURE-LAB.md lists, in that order, and runs the functions that
each item names. The room core is left out. The functions of the trace's walk stand in the files that it names.

As a script, `test_walk.py ARGUMENT...`, it runs the command in its own process, which has cached nothing yet, and
prints what was entered: one JSON object of a file's functions to each file.
"""

import json
import os
import re
import subprocess
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

from freestone_lab import cli
from freestone_lab.core import paths
from freestone_lab.core.result import Peer

ROOT = paths.root()
PACKAGE = ROOT / "lab/freestone_lab"
NAMED = re.compile(r"`([a-zA-Z_]\w+(?:::\w+)?)`")
ITEM = re.compile(r"^\d+\. \[([\w/]+\.py)\]\([^)]*\):((?:[^\n]|\n {3})*)", re.MULTILINE)


def listed() -> dict[str, list[str]]:
    page = (ROOT / "docs/ARCHITECTURE-LAB.md").read_text(encoding="utf-8")
    walk = page.partition("### The walk of `freestone compare`")[2].partition("\n#")[0]
    return {file: re.findall(r"`([\w.]+)`", text) for file, text in ITEM.findall(walk)}


def entered(arguments: list[str]) -> dict[str, list[str]]:
    """File below the package -> functions that ran in it, from the command's own function on."""
    found: dict[str, dict[str, None]] = {}

    def follow(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_flags & CO_OPTIMIZED:
            return
        if not code.co_filename.startswith(f"{PACKAGE}/") or not code.co_filename.endswith(".py"):
            return
        file = code.co_filename.removeprefix(f"{PACKAGE}/")
        if found or (file == "commands/compare.py" and code.co_name == "run"):
            found.setdefault(file, {})[code.co_qualname] = None

    threading.setprofile(follow)
    sys.setprofile(follow)
    try:
        cli.run(arguments)
    finally:
        sys.setprofile(None)
    return {file: list(functions) for file, functions in found.items() if not file.startswith("core/")}


def test_the_walk_through_compare_is_as_the_page_says(tmp_path: Path, work: Path, controls: dict[str, Peer]) -> None:
    options = ["--only", f"pass={controls['passthrough'].path}", "--rounds", "2"]
    command = [sys.executable, __file__, "compare", *options, "--", str(work), "1000"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ran: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    ran.pop("measure/tree.py", None)  # a run must last for the watcher to look at its processes
    assert list(listed()) == list(ran)
    assert [(file, f) for file, functions in listed().items() for f in functions if f not in ran[file]] == []


def test_the_walk_of_the_trace_names_functions_of_its_files() -> None:
    page = (ROOT / "docs/ARCHITECTURE-LAB.md").read_text(encoding="utf-8")
    walk = page.partition("### The walk of one call")[2].partition("\n## ")[0]
    files = re.split(r"\[[\w/.]+\]\(\.\./([\w/.]+)\)", walk)[1:]
    named = [(file, name) for file, text in zip(files[::2], files[1::2], strict=True) for name in NAMED.findall(text)]
    assert len(files) > 30
    assert len(named) > 15
    missing = [pair for pair in named if pair[1].rpartition(":")[2] not in (ROOT / pair[0]).read_text(encoding="utf-8")]
    assert missing == []


if __name__ == "__main__":
    print(json.dumps(entered(sys.argv[1:])))
