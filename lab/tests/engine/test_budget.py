"""Budgets under a clock that stands still unless a run takes its time: kept, and always an answer about something."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freestone_lab.analysis.sequential import LEAST_ROUNDS
from freestone_lab.core.result import Peer, Sample
from freestone_lab.engine import session
from freestone_lab.engine.budget import Budget
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
        wall = made.run(engine) * (3.0 if peer.name == "e" else 1.0)
        return Sample(peer.name, round_, "ok", figures={"wall": wall, "rss": 1000.0}), None

    def first(engine: Engine, _: Path) -> None:
        engine.look = Look(engine.task.id, seconds=made.run(engine))

    monkeypatch.setattr(time, "monotonic", made.monotonic)
    monkeypatch.setattr(Engine, "_once", once)
    monkeypatch.setattr(Engine, "_first", first)
    monkeypatch.setattr(Engine, "_second", lambda engine, *_: made.run(engine))
    monkeypatch.setattr(Engine, "_prove", lambda engine, *_: made.run(engine))
    monkeypatch.setattr(fingerprint, "collect", lambda *_: {})
    yield made


def compare(seconds: float, jobs: list[Task] = JOBS, decide: bool = False, **more: Any) -> session.Outcome:
    plans = [(job, Plan(rounds=100, decide=decide)) for job in jobs]
    return session.Sitting(plans, PEERS, ["x"], lambda _: None, budget=Budget(seconds, **more)).run()


def rounds(outcome: session.Outcome) -> dict[str, dict[str, int]]:
    """By job and allocator: in how many rounds it has figures."""
    found: dict[str, dict[str, int]] = {}
    for job in outcome.result.experiments:
        names = {s.peer for s in job.samples}
        found[job.id] = {n: sum(s.peer == n and s.round > 0 for s in job.samples) for n in names}
    return found


def answered(of: dict[str, int]) -> bool:
    return len(of) == len(PEERS) + 1 and min(of.values()) >= LEAST_ROUNDS


ROWS = len(PEERS) + 1  # the baseline runs twice
LEAST_S = ROWS * (1 + LEAST_ROUNDS) * JOBS[0].seconds * 1.1


@pytest.mark.parametrize("slow", [0.1, 0.5, 1, 3])
@pytest.mark.parametrize("seconds", [30.0, 115.0, 600.0])
def test_a_limit_is_kept_and_ends_in_an_answer(seconds: float, slow: float, clock: Clock) -> None:
    clock.slow = slow
    outcome = compare(seconds)
    assert clock.now <= 1.02 * seconds
    if seconds > 1.1 * LEAST_S * slow:
        assert any(answered(of) for of in rounds(outcome).values()), rounds(outcome)
    said = {name.split(" in ")[-1] for name in outcome.not_run} | {job.id for job in outcome.result.experiments}
    assert said == {job.id for job in JOBS}, "what was not run is listed"


@pytest.mark.parametrize("seconds", [4.0, 6.0, 8.0, 9.0, 11.0, 13.0, 16.0, 60.0])
def test_nobody_is_left_out_before_all_had_a_look_and_who_was_is_named(seconds: float, clock: Clock) -> None:
    outcome = compare(seconds, JOBS[:1])
    measured = next(iter(rounds(outcome).values()), {})
    rivals = [p.name for p in PEERS]
    assert {n for n in rivals if n not in measured} == {n for n in rivals if n in outcome.not_run}, outcome.not_run
    if len(measured) < ROWS:
        assert max(measured.values(), default=1) == 1, "no second round before all had a first"
    assert clock.now <= 1.2 * seconds


def test_who_is_left_out_is_drawn_by_lot(clock: Clock) -> None:
    left = set()
    for seed in range(20):
        plan = [(JOBS[0], Plan(rounds=100, seed=seed))]
        left |= set(session.Sitting(plan, PEERS, ["x"], lambda _: None, budget=Budget(6.0)).run().not_run)
    assert left >= {"a", "b", "c", "d", "e"}


def test_a_default_limit_grows_for_the_least_look_at_everybody(clock: Clock) -> None:
    task = replace(JOBS[0], seconds=6.0)
    assert not answered(rounds(compare(90, [task]))["v"])
    assert answered(rounds(compare(90, [task], reach_s=360.0))["v"])


def test_who_has_lost_leaves_the_race_and_is_never_unmeasured(clock: Clock) -> None:
    runs = rounds(compare(10_000, JOBS[:1], decide=True))["v"]
    assert runs["e"] < runs["a"] and runs["e"] >= LEAST_ROUNDS, runs
    assert runs["glibc"] == runs["glibc again"] == runs["a"] == runs["d"]


def test_time_is_used_where_there_is_some(clock: Clock) -> None:
    outcome = compare(600)
    assert clock.now >= 0.95 * 600 and not outcome.not_run
    counts = [min(of.values()) for of in rounds(outcome).values()]
    assert all(answered(of) for of in rounds(outcome).values()) and max(counts) - min(counts) <= 1


def test_the_first_jobs_come_first_when_time_is_short(clock: Clock) -> None:
    clock.slow = 1.5
    outcome = compare(115)
    assert answered(rounds(outcome)["v"]) and set(outcome.not_run) >= {"x", "y", "z"}


def test_going_on_gives_more_rounds_and_ending_ends(clock: Clock) -> None:
    task = [replace(JOBS[0])]
    plain = rounds(compare(60, task, decide=True))["v"]["a"]
    asked: list[float] = []

    def grant(seconds: float) -> float:
        asked.append(seconds)
        return 72.0 if len(asked) == 1 else 0.0

    begun = clock.now
    more = rounds(compare(60, task, decide=True, ask=grant))["v"]["a"]
    assert len(asked) == 2 and plain + 8 <= more <= plain + 13
    assert clock.now - begun <= 60 + 72 * 1.1
