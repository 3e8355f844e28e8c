"""The verdict protocol of the attack suite: what one `freestone-attack` process did, and what that means.

The program writes markers (`@@ OWNER`, `@@ FAULT`, `@@ PAST`, `@@ ATTACK_SUCCEEDED`, ...; see the suite's harness.h);
everything else in its output after `@@ FAULT` is the allocator's message. A process never counts as a detection if it
shows no owner of malloc, or another owner than the peer. Nothing here starts a process.
"""

from __future__ import annotations

import functools
import os
import re
import signal
from dataclasses import dataclass
from typing import Literal

from freestone_lab.core.result import Peer

Verdict = Literal[
    "reported", "trapped", "neutralised", "late", "missed", "timeout", "false_alarm", "failed", "not_applicable"
]
VERDICTS: tuple[Verdict, ...] = (
    "reported",
    "trapped",
    "neutralised",
    "late",
    "missed",
    "timeout",
    "false_alarm",
    "failed",
    "not_applicable",
)
DEFENDED: frozenset[Verdict] = frozenset(("reported", "trapped", "neutralised"))
MEANINGS: dict[Verdict, str] = {
    "reported": "the allocator said so, before any effect on another object",
    "trapped": "the process was stopped at the misuse: by the kernel at the access, or by the allocator without a word",
    "neutralised": "the program ran on, and no other object was affected",
    "late": "the process died or the allocator spoke, but after the effect, or by a crash at some later place",
    "missed": "another object was affected, and nobody noticed",
    "timeout": "the process hung after the misuse",
    "false_alarm": "the bug-free twin failed, so nothing is known of the attack",
    "failed": "the process did not start under this allocator, or died before the misuse",
    "not_applicable": "the process lacks a call that the case needs; not counted",
}

_MARKER = re.compile(r"@@ ([A-Z_]+)(?: ([^\n]*))?\n?")
_CRASHES = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE))
_LIBC = re.compile(r"/(libc[.-]|ld-)[^/]*$")
_DETAIL_LENGTH = 200


@dataclass(frozen=True)
class Outcome:
    """How one process ended: its wait status as `os.waitstatus_to_exitcode` gives it, and all it wrote."""

    exit_code: int
    text: str
    timed_out: bool = False

    @functools.cached_property
    def markers(self) -> dict[str, str]:
        return {match[1]: match[2] or "" for match in _MARKER.finditer(self.text)}

    @functools.cached_property
    def message(self) -> str:
        """One line: what anybody but the suite wrote after the misuse began."""
        return _one_line(self.text.partition("@@ FAULT\n")[2])

    @property
    def end(self) -> str:
        """How the process ended, in words."""
        if self.timed_out:
            return "no end within the time limit"
        if self.exit_code >= 0:
            return f"exit {self.exit_code}"
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    detail: str


def _one_line(text: str) -> str:
    own = _MARKER.sub("\n", text)
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in own.splitlines()]
    return " / ".join(line for line in lines if line)[:_DETAIL_LENGTH]


@functools.lru_cache(maxsize=256)
def _same_file(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def not_served(outcome: Outcome, peer: Peer) -> str:
    """Why this process is no evidence about `peer`; "" when `peer` served its malloc."""
    owner = outcome.markers.get("OWNER")
    if owner is None:
        said = _one_line(outcome.text)
        return f"died before main: {outcome.end}{': ' if said else ''}{said}"
    served = _LIBC.search(owner) is not None if peer.path is None else _same_file(owner, peer.path)
    return "" if served else f"malloc was served by {owner}"


def judge_twin(outcome: Outcome, peer: Peer) -> Judgement | None:
    """None if the twin succeeded, so that its attack may run; otherwise the verdict of the pair."""
    reason = not_served(outcome, peer)
    if reason:
        return Judgement("failed", reason)
    if "NOT_APPLICABLE" in outcome.markers:
        return Judgement("not_applicable", outcome.markers["NOT_APPLICABLE"])
    if outcome.exit_code == 0 and "TWIN_OK" in outcome.markers:
        return None
    told = outcome.markers.get("ATTACK_SUCCEEDED") or outcome.markers.get("REFUSED") or outcome.message
    return Judgement("false_alarm", f"twin: {outcome.end}{': ' if told else ''}{told}"[:_DETAIL_LENGTH])


def judge_attack(outcome: Outcome, peer: Peer) -> Judgement:
    """The verdict of an attack whose twin succeeded."""
    reason = not_served(outcome, peer)
    if reason:
        return Judgement("failed", reason)
    if "NOT_APPLICABLE" in outcome.markers:
        return Judgement("not_applicable", outcome.markers["NOT_APPLICABLE"])
    if "FAULT" not in outcome.markers:
        return Judgement("failed", f"died before the misuse: {outcome.end} {_one_line(outcome.text)}".strip())
    effect = outcome.markers.get("ATTACK_SUCCEEDED")
    if effect is not None:
        noticed = outcome.message or (not outcome.timed_out and outcome.exit_code != 10)
        if not noticed:
            return Judgement("missed", effect)
        return Judgement("late", f"{effect}; then {outcome.message or outcome.end}"[:_DETAIL_LENGTH])
    if outcome.timed_out:
        return Judgement("timeout", outcome.message or outcome.end)
    if outcome.message:
        return Judgement("reported", outcome.message)
    if outcome.exit_code == 0:
        return Judgement("neutralised", "")
    if outcome.exit_code < 0 and -outcome.exit_code in _CRASHES and "PAST" in outcome.markers:
        return Judgement("late", f"{outcome.end} some time after the misuse")
    return Judgement("trapped", outcome.end)
