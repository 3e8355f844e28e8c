"""The time that a sitting may take: one object that the command makes, the engine keeps to, and the user may extend."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field


def measuring_s(budget_s: float) -> float:
    """The part of what the user allows in all that measures. The rest draws the page."""
    return max(budget_s * 0.6, budget_s - max(4.0, budget_s * 0.05))


@dataclass
class Budget:
    """No run starts that would end later.

    `reach_s`: so far it grows for the least look at a single task. `ask`: told how many seconds would settle what is
    open, it says how many more the user grants. `asked`: the option that set the limit, if one did.
    """

    seconds: float | None = None
    reach_s: float | None = None
    ask: Callable[[float], float] = lambda _: 0.0
    asked: str = ""
    begun: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        self.begun = time.monotonic()

    def left(self) -> float:
        return math.inf if self.seconds is None else self.seconds - (time.monotonic() - self.begun)

    def extend(self, seconds: float) -> bool:
        """Asks for so much more. Whether any was granted."""
        granted = self.ask(seconds)
        if self.seconds is not None:
            self.seconds += granted
        return granted > 0

    def grow(self, seconds: float) -> None:
        """Makes it at least so long, if it may be."""
        if self.seconds is not None and self.reach_s is not None:
            self.seconds = max(self.seconds, min(seconds, self.reach_s))
