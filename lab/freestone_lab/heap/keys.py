"""The keys of `freestone top`: what each does to the picture, and how to read them from the terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

HELP = "s sort   c classes   t threads   b both   f freeze   q quit"
# By what the tables are sorted: of the size classes, of the threads. One key goes through both.
ORDERS = (("bytes", "cached"), ("live", "slow paths"), ("cached", "of"), ("block", "thread"))
TABLES = {"b": ("classes", "threads"), "c": ("classes",), "t": ("threads",)}


@dataclass(frozen=True)
class View:
    """What the picture shows of a process."""

    tables: tuple[str, ...] = TABLES["b"]
    order: int = 0
    frozen: bool = False

    @property
    def classes_by(self) -> str:
        return ORDERS[self.order][0]

    @property
    def threads_by(self) -> str:
        return ORDERS[self.order][1]

    def after(self, key: str) -> View | None:
        """The view that a key leads to; None for the end."""
        if key in ("q", "\x1b", "\x04"):
            return None
        if key == "s":
            return replace(self, order=(self.order + 1) % len(ORDERS))
        if key in ("f", " "):
            return replace(self, frozen=not self.frozen)
        return replace(self, tables=TABLES.get(key, self.tables))


# Waits at most this many seconds for a key; "" if none comes.
Keys = Callable[[float], str]


@contextmanager
def of_terminal() -> Iterator[Keys | None]:
    """Keys as they are pressed, without Enter and without an echo. None if the input is no terminal.

    Ctrl-C keeps its meaning. Afterwards the terminal is as before.
    """
    if not sys.stdin.isatty():
        yield None
        return
    file = sys.stdin.fileno()

    def wait(seconds: float) -> str:
        if not select.select([file], [], [], seconds)[0]:
            return ""
        typed = os.read(file, 32).decode(errors="replace")
        return "" if len(typed) > 1 and typed[0] == "\x1b" else typed[:1]  # an arrow begins as Escape does

    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield wait
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
