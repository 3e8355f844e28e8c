"""Signals that end the program: SIGTERM and SIGHUP act like Ctrl-C, so that what was measured is kept."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Ended(KeyboardInterrupt):
    """A signal that ends the program; `status` is its exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextlib.contextmanager
def ends_are_kept() -> Iterator[list[int]]:
    """Within the context, the first such signal raises Ended. The list gets the exit status for that signal."""
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        came.append(128 + number)
        if len(came) == 1:
            raise Ended(number)

    wanted = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
