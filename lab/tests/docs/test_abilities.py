"""The table of abilities: what never happened and what failed stand out, and each figure has words."""

import re

import workload_tools as tools

from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.docs import abilities
from freestone_lab.workloads import suites

PEERS = [Peer("glibc", None, "libc", "2.36"), Peer("late", "late.so", version="1.2"), Peer("null", "n.so", "control")]


def experiment(part: str, unit: str, figures: dict[str, dict[str, list[float]]], **params: int) -> Experiment:
    """`figures`: allocator to figure to its values by round."""
    found = Experiment(f"reuse/{part}", "reuse", dict(params))
    for peer, values in figures.items():
        found.specs |= {name: FigureSpec(unit, "higher") for name in values}
        for turn in range(1, 4):
            taken = {name: each[turn - 1] for name, each in values.items()}
            found.samples.append(Sample(peer, turn, "ok", figures=taken))
    return found


def lines_of(*experiments: Experiment) -> list[str]:
    return abilities.text(Result("", ["freestone", "bench"], 1, {}, PEERS, list(experiments))).splitlines()


def distance(least: list[float], middle: list[float]) -> dict[str, list[float]]:
    return {"alone_4000_least": least, "alone_4000_median": middle}


def test_a_distance_shows_the_least_and_the_median_of_all_runs_and_what_never_came() -> None:
    figures = {"glibc": distance([1] * 3, [1] * 3), "late": distance([1200, 900, 1300], [2001, 1500, 1700])}
    lines = lines_of(experiment("small", "requests", figures, cap=2000))
    assert "|  | late | glibc |" in lines
    assert "| pairs of 4,000 B until a freed address returns, alone | 900 / 1,700 | 1 |" in lines
    figures["late"] = distance([900, 2000, 1300], [2001, 2001, 1700])
    assert "alone | 900 / never in 2,000 | 1 |" in lines_of(experiment("s", "requests", figures, cap=2000))[-1]
    figures["late"] = distance([2001] * 3, [2001] * 3)
    assert "alone | never in 2,000 | 1 |" in lines_of(experiment("s", "requests", figures, cap=2000))[-1]


def test_shares_and_different_values_are_the_middle_and_the_least() -> None:
    shares = {"late": {"guessed_24": [0.0, 12.34, 99.0]}}
    values = {"glibc": {"small_from_large": [16.0, 1.0, 2.0]}}
    lines = lines_of(experiment("layout", "%", shares), experiment("distances", "values", values, rounds=16))
    assert "| right guesses at the next block of 24 B, % | 12.3 | - |" in lines
    assert "| different distances from the first block of 24 B to one of 100,000 B | - | 1 of 16 |" in lines


def test_one_failed_run_is_named_and_leaves_no_figure() -> None:
    found = experiment("large", "requests", {"late": distance([5] * 3, [5] * 3)}, cap=9)
    found.samples.append(Sample("late", 4, "failed", "killed by SIGABRT"))
    lines = lines_of(found)
    assert "| pairs of 4,000 B until a freed address returns, alone | fails | - |" in lines
    assert lines[-2:] == ["", "- late in reuse/large: killed by SIGABRT"]


def test_each_figure_of_the_suite_has_a_row_and_each_row_a_figure() -> None:
    names: set[str] = set()
    for run in suites.HARDENING:
        params = {**run.params, "rounds": 1, "rest": 1, "cap": 9}
        out = tools.run(run.workload, *(f"--{name}={value}" for name, value in params.items()))
        names |= out.json["figures"].keys()
    about_process = {"start_rss", "own_tables", "all_faults", "idle_rss", "peak_rss"}
    firsts = {name for name in names - about_process if not name.endswith("_median")}
    said = [[pattern for pattern in abilities.WORDS if re.fullmatch(pattern, name)] for name in firsts]
    assert {len(patterns) for patterns in said} == {1}
    assert {pattern for patterns in said for pattern in patterns} == set(abilities.WORDS)
