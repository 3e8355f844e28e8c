"""Budgets under a clock that stands still unless a run takes its time: kept, and always an answer about something."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core.result import Peer, Sample
from freestone_lab.engine import session
from freestone_lab.engine.experiment import Engine
from freestone_lab.engine.plan import Plan, Task
from freestone_lab.measure import fingerprint
from freestone_lab.measure.recognise import Look

PEERS = [Peer("glibc", None, "libc"), *(Peer(name, f"/opt/{name}.so", "preload") for name in "abcde")]
JOBS = [
    Task(name, name, ("/bin/true",), cwd=Path("/"), seconds=s)
    for name, s in zip("vwxyz", (1.0, 1.2, 2.0, 1.1, 1.6), strict=True)
]


class Clock:
    """Every run takes its task's seconds, times the machine's slowness, and up to a tenth more."""

    def __init__(self) -> None:
        self.now, self.slow, self.runs = 0.0, 1.0, 0

    def monotonic(self) -> float:
        return self.now

    def run(self, engine: Engine) -> float:
        self.runs += 1
        taken = engine.task.seconds * self.slow * (1 + self.runs % 5 / 40)
        self.now += taken
        engine.longest_s = max(engine.longest_s, taken)
        return taken


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()

    def once(engine: Engine, peer: Peer, round_: int, *_: object, **__: object) -> tuple[Sample, None]:
        return Sample(peer.name, round_, "ok", figures={"wall": made.run(engine), "rss": 1000.0}), None

    def first(engine: Engine, _: Path) -> None:
        engine.look = Look(engine.task.id, seconds=made.run(engine))

    monkeypatch.setattr(time, "monotonic", made.monotonic)
    monkeypatch.setattr(Engine, "_once", once)
    monkeypatch.setattr(Engine, "_first", first)
    monkeypatch.setattr(Engine, "_second", lambda engine, *_: made.run(engine))
    monkeypatch.setattr(Engine, "_prove", lambda engine, *_: made.run(engine))
    monkeypatch.setattr(fingerprint, "collect", lambda *_: {})
    yield made


def compare(seconds: float, jobs: list[Task] = JOBS, **more: object) -> session.Outcome:
    plan = Plan(min_rounds=10, max_rounds=100, budget_s=seconds, budget_share=len(jobs))
    return session.run([(job, plan) for job in jobs], PEERS, ["x"], lambda _: None, **more)  # type: ignore[arg-type]


def rounds(outcome: session.Outcome) -> dict[str, dict[str, int]]:
    """By job and allocator: in how many rounds it has figures."""
    found: dict[str, dict[str, int]] = {}
    for job in outcome.result.experiments:
        names = {s.peer for s in job.samples}
        found[job.id] = {n: sum(s.peer == n and s.round > 0 for s in job.samples) for n in names}
    return found


def answered(of: dict[str, int]) -> bool:
    return (
        any(n >= LEAST_ROUNDS for name, n in of.items() if not name.startswith("glibc"))
        and of.get("glibc", 0) >= LEAST_ROUNDS
    )


# What the least takes: a first run, the control's, and LEAST_ROUNDS of the baseline, the control and one rival.
LEAST_S = 3 * (1 + LEAST_ROUNDS) * JOBS[0].seconds


@pytest.mark.parametrize("slow", [0.5, 1, 3, 6, 8])
@pytest.mark.parametrize("seconds", [30.0, 115.0, 600.0])
def test_a_budget_is_kept_within_a_tenth_and_ends_in_an_answer(seconds: float, slow: float, clock: Clock) -> None:
    clock.slow = slow
    outcome = compare(seconds)
    if seconds > 1.5 * LEAST_S * slow:
        assert any(answered(of) for of in rounds(outcome).values()), rounds(outcome)
        assert clock.now <= 1.1 * seconds
    said = {name.split(" in ")[-1] for name in outcome.not_run} | {job.id for job in outcome.result.experiments}
    assert said == {job.id for job in JOBS}, "what was not run is listed"
    for job, of in rounds(outcome).items():
        for peer in PEERS[1:] if answered(of) else ():
            assert peer.name in of or f"{peer.name} in {job}" in outcome.not_run


def test_time_is_used_where_there_is_some(clock: Clock) -> None:
    outcome = compare(600)
    assert clock.now >= 0.9 * 600 and not outcome.not_run
    assert all(answered(of) and len(of) == len(PEERS) + 1 for of in rounds(outcome).values())


def test_the_first_jobs_come_first_when_time_is_short(clock: Clock) -> None:
    clock.slow = 5
    outcome = compare(115)
    assert answered(rounds(outcome)["v"]) and set(outcome.not_run) >= {"x", "y", "z"}


def test_going_on_gives_more_rounds_and_ending_ends(clock: Clock) -> None:
    task = [replace(JOBS[0])]
    plain = rounds(compare(60, task))["v"]["a"]
    asked: list[float] = []

    def grant(engine: Engine) -> float:
        asked.append(engine.round_s)
        return 10 * engine.round_s if len(asked) == 1 else 0.0

    begun = clock.now
    more = rounds(compare(60, task, more=grant))["v"]["a"]
    assert len(asked) == 2 and plain + 8 <= more <= plain + 11
    assert clock.now - begun <= 1.1 * 60 + 11 * asked[0]
