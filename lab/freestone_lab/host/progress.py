"""Runs the programs that build and test, and shows what runs and how much of it is left.

On a terminal the lines that only count (of ninja, ctest and pytest) become one line that is drawn again; every other
line is printed. Elsewhere all lines are.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from freestone_lab.core import paths

# What only counts: ninja's steps, starts and ends of tests by ctest, pytest's letters.
COUNTING = re.compile(r"\[(\d+)/(\d+)\] | *(\d+)/(\d+) Test +#|[.sxXFE]+ *\[ *(\d+)%\]$| +Start +\d+: ")
BAD = re.compile(r"\*\*\*(?!Skipped)|FAILED: ")
PAUSE_S = 0.1  # between two looks at what a program wrote


@dataclass(frozen=True)
class Done:
    """`cpu_seconds` are those of the program and of all that it waited for."""

    status: int
    cpu_seconds: float


class Progress:
    """Writes to one stream. Any thread may call it."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._drawn = stream.isatty()
        self._counts: dict[str, str] = {}  # by what runs, how far it is
        self._begin = time.monotonic()
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        self._print(f"freestone: {line}\n")

    def run(
        self,
        what: str,
        command: Sequence[str],
        cwd: Path,
        settings: Mapping[str, str] | None = None,
        at_end: bool = False,
    ) -> Done:
        """Runs a program with an empty standard input. `settings` join the environment.

        Its output goes to a log in the cache folder, and from there to the stream: a process that the program leaves
        behind can hold a file open without holding up its reader. With `at_end`, it appears when the program has ended.
        """
        self.say(what)
        log = paths.cache_dir() / f"{what.replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output, log.open(errors="replace") as lines:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(settings or {})},
            )
            held, rest, ended = "", "", 0
            while not ended:
                time.sleep(PAUSE_S)
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
                text, newline, rest = (rest + lines.read()).rpartition("\n")
                if ended and rest:
                    text, newline, rest = text + newline + rest, "\n", ""
                held += "".join(f"{line}\n" for line in text.split("\n") if newline and not self._counted(what, line))
                if ended:
                    with self._lock:
                        self._counts.pop(what, None)
                if ended or (held and not at_end):
                    self._print(held)
                    held = ""
        process.returncode = os.waitstatus_to_exitcode(status)
        return Done(process.returncode, usage.ru_utime + usage.ru_stime)

    def _counted(self, what: str, line: str) -> bool:
        """Whether the line only counts, and is on a terminal, where it was taken."""
        found = COUNTING.match(line) if self._drawn else None
        if found is None or BAD.search(line):
            return False
        at, of, percent = found[1] or found[3], found[2] or found[4], found[5]
        if at or percent:
            with self._lock:
                self._counts[what] = f"{what}: {f'{at} of {of}' if at else f'{percent} %'}"
            self._print("")
        return True

    def _print(self, text: str) -> None:
        with self._lock:
            if self._drawn:
                minutes, seconds = divmod(int(time.monotonic() - self._begin), 60)
                line = f"{minutes}:{seconds:02}  {'; '.join(self._counts.values())}" if self._counts else ""
                columns = os.get_terminal_size(self._stream.fileno()).columns or 80
                text = f"\r\033[K{text}{line[: columns - 1]}"
            self._stream.write(text)
            self._stream.flush()
