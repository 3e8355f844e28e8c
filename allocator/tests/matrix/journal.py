"""What a run of the matrix has met so far, kept in a file: a line for the build, then one for each cell that ended.

A line is written when its cell ends, so a run that is interrupted loses the cells in progress and no other. What a test
may miss is judged when the file is read: promises.py may change between two runs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

from matrix.cells import Failure, Outcome

SCHEMA = "freestone-matrix-cells/1"


@dataclass(frozen=True)
class Entry:
    """How one cell ended. `unsteady`: it missed something at first and not when it was run again."""

    axis: str
    test: str
    outcome: Outcome
    unsteady: bool = False


def identity(files: Iterable[Path]) -> str:
    """The same for the same bytes."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


@dataclass
class Journal:
    """The cells that have ended. Without `file` they are not kept."""

    file: TextIO | None = None
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def enter(self, entry: Entry) -> None:
        with self._lock:
            self.entries[entry.axis, entry.test] = entry
            if self.file is not None:
                self.file.write(json.dumps(asdict(entry), separators=(",", ":")) + "\n")
                self.file.flush()


@contextmanager
def opened(path: Path, build: str) -> Iterator[Journal]:
    """The journal of that file if it is of this build, else an empty one in its place."""
    head = json.dumps({"schema": SCHEMA, "build": build})
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    whole = [line for line in lines if line.endswith("\n")]
    if not whole or whole[0].rstrip() != head:
        whole = [head + "\n"]
        path.write_text(whole[0], encoding="utf-8")
    elif len(whole) < len(lines):
        os.truncate(path, sum(len(line.encode()) for line in whole))  # the last line was cut
    entries = [_entry(json.loads(line)) for line in whole[1:]]
    with path.open("a", encoding="utf-8") as file:
        yield Journal(file, {(entry.axis, entry.test): entry for entry in entries})


def _entry(stored: dict[str, Any]) -> Entry:
    outcome = stored.pop("outcome")
    failures = [Failure(**failure) for failure in outcome.pop("failures")]
    called = {int(number): byte for number, byte in outcome.pop("called").items()}
    return Entry(**stored, outcome=Outcome(**outcome, failures=failures, called=called))
