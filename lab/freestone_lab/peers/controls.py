"""The slow control, set to a wanted share. With it the lab proves that it finds a difference of 5 %."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from freestone_lab.core.result import Peer
from freestone_lab.peers import discover

SLOW = "slow"
DELAY_VARIABLE = "FREESTONE_CONTROL_SLOW_NS"
_TRIAL_NS = 100.0
_LARGEST_NS = 1e6
_CORRECTIONS = 3


def slow_peer(delay_ns: float) -> Peer:
    """The slow control with that delay at each allocation and each free; 0 leaves the cost of forwarding alone."""
    if not 0 <= delay_ns <= _LARGEST_NS:
        raise discover.PeerError(f"delay {delay_ns:g} ns: expected 0 to 1000000")
    return dataclasses.replace(discover.find(SLOW), env=((DELAY_VARIABLE, f"{delay_ns:.3f}"),))


def calibrated(share: float, seconds: Callable[[Peer], float], *, rounds: int = 9) -> tuple[Peer, Peer]:
    """(the slow control without delay, the slow control that makes a program take `share` longer than under the first).

    `seconds` runs the program once under a peer and returns its time. The program's own times correct the delay: the
    least of `rounds` runs of each, taken in turns, because a disturbance only makes a run longer. Raises PeerError if
    the program is not slower with 100 ns at each call, because then it hardly allocates.
    """
    if not 0 < share <= 10:
        raise discover.PeerError(f"share {share:g}: expected more than 0 and at most 10")
    plain, delay_ns = slow_peer(0), _TRIAL_NS
    for _ in range(_CORRECTIONS):
        slow = slow_peer(delay_ns)
        times = [(seconds(plain), seconds(slow)) for _ in range(rounds)]
        base = min(without for without, _ in times)
        added = min(with_delay for _, with_delay in times) - base
        if added <= 0:
            raise discover.PeerError(
                f"no slower with {delay_ns:.1f} ns at each call; expected a program that allocates more"
            )
        delay_ns = min(share * base / added * delay_ns, _LARGEST_NS)
    return plain, slow_peer(delay_ns)
