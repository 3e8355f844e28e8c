"""The costs of real programs: the worst comes first, failures stay in the table, and means leave them out."""

from __future__ import annotations

from freestone_lab.core.result import Experiment, Peer, Result, Sample
from freestone_lab.docs import cost_table
from freestone_lab.workloads import app_table, suites

PEERS = ("glibc", "glibc again", cost_table.FAST, cost_table.HARDENED)


def experiment(name: str, hardened: float, failing: str = "") -> Experiment:
    """Eight rounds that drift by a tenth a round; `failing` names a peer whose fifth run ends badly."""
    found = Experiment(f"app/{name}", name)
    for turn in range(1, 9):
        for peer in PEERS:
            factor = hardened if peer == cost_table.HARDENED else 1.0
            figures = {"cpu": factor * (1 + turn / 10), "rss": 1000.0 * factor}
            bad = peer == failing and turn == 5
            sample = Sample(peer, turn, "ok", figures=figures)
            found.samples.append(Sample(peer, turn, "failed", "killed by SIGABRT") if bad else sample)
    return found


def result(*experiments: Experiment) -> Result:
    peers = [Peer(name, None) for name in PEERS]
    return Result("", ["freestone", "bench", "costs"], 1, {}, peers, list(experiments))


def rows(made: Result) -> dict[str, list[str]]:
    lines = [line for line in cost_table.table(made).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return {row[0]: row[1:] for row in cells}


def test_the_worst_comes_first_and_the_mean_last() -> None:
    found = rows(result(experiment("bash", 1.21), experiment("git", 1.69), experiment("jq", 1.0)))
    measured = [name for name in found if found[name][0] != "not measured"]
    assert measured == ["git", "bash", "jq", "geometric mean"]
    assert found["git"] == ["1.69", "1.68 to 1.70", "1.00", "1.00", "1.69", "1.00"]
    assert found["geometric mean"] == ["1.27", "", "1.00", "1.00", "1.27", "1.00"]


def test_a_failure_stands_above_all_figures_and_in_no_mean() -> None:
    found = rows(result(experiment("git", 1.5), experiment("bash", 1.1, cost_table.HARDENED)))
    assert found["bash"][0] == "failed: killed by SIGABRT"
    assert list(found).index("bash") < list(found).index("git")
    assert found["geometric mean"][0] == "1.50"
    assert found["geometric mean"][2] == "1.00"


def test_a_program_that_was_not_measured_is_named() -> None:
    found = rows(result(experiment("git", 1.5)))
    assert set(suites.COSTS) <= found.keys()
    assert found["emacs"][0] == "not measured"


def test_the_suite_has_the_promised_programs() -> None:
    assert {"python", "r", "emacs", "ruby", "make", "git", "pandas"} <= set(suites.COSTS)
    assert len(suites.COSTS) == len(set(suites.COSTS)) >= 20
    assert set(suites.COSTS) <= {app.name for app in app_table.APPS}
