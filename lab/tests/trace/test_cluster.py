"""Replays on a local Dask cluster of two workers: the same counts as here, also when one of them is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic
from trace_tools import BUILT, PROGRAM, record

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Result
from freestone_lab.core.result_file import load, save
from freestone_lab.trace import cluster

ARGUMENTS = ("--rounds", "2", "--seed", "7", "--only", "freestone")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> list[cluster.Work]:
    found = []
    for count in (2000, 3000, 4000):
        path = record(tmp_path_factory.mktemp("traces") / f"churn-{count}.fst", str(PROGRAM), "churn", str(count))
        found.append(cluster.Work(path.stem, path.read_bytes(), ARGUMENTS))
    return found


@pytest.fixture
def local() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    os.environ["PYTHONPATH"] = str(paths.root() / "lab")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        yield made


def counts(result: Result) -> dict[str, tuple[object, dict[str, int]]]:
    """Per experiment: its calls, and how many good samples each allocator has."""
    found = {}
    for experiment in result.experiments:
        good: dict[str, int] = {}
        for sample in experiment.samples:
            good[sample.peer] = good.get(sample.peer, 0) + (sample.status == "ok")
        found[experiment.id] = (experiment.params["calls"], good)
    return found


def here(one: cluster.Work, tmp_path: Path) -> dict[str, tuple[object, dict[str, int]]]:
    path = tmp_path / "here.json.gz"
    path.write_bytes(cluster.measure(one.name, one.data, one.arguments)[2])
    return counts(load(path))


@BUILT
@pytest.mark.all
def test_two_workers_count_what_one_process_counts_and_go_on_when_one_is_killed(
    work: list[cluster.Work], local: Any, tmp_path: Path
) -> None:
    said: list[str] = []

    def kill_one() -> None:
        while not said:
            time.sleep(0.05)
        os.kill(next(iter(local.workers.values())).pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    results = cluster.run(local.scheduler_address, work, tmp_path / "store", said.append)
    killer.join()
    together: dict[str, tuple[object, dict[str, int]]] = {}
    for result in results.values():
        together.update(counts(result))
    assert set(together) == {f"replay/{one.name}" for one in work}
    assert all(good == dict.fromkeys(("glibc", "glibc again", "freestone"), 2) for _, good in together.values())
    alone = here(work[0], tmp_path)
    assert alone == {name: together[name] for name in alone}
    again = cluster.run("tcp://127.0.0.1:1", work, tmp_path / "store", said.append)  # nothing is left to do
    assert "3 experiments are in" in said[-1] and list(again) == list(results)
    for other in (
        cluster.Work(work[0].name, work[0].data, (*ARGUMENTS[:1], "3", *ARGUMENTS[2:])),
        cluster.Work(work[0].name, work[1].data, ARGUMENTS),
    ):
        with pytest.raises(UserError, match=f"holds {work[0].name} for another request"):
            cluster.run("tcp://127.0.0.1:1", [other], tmp_path / "store", said.append)


@BUILT
@pytest.mark.all
def test_an_address_without_a_scheduler_is_named(
    work: list[cluster.Work], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "PATIENCE_S", 1)
    with pytest.raises(UserError, match="no scheduler answers"):
        cluster.run("tcp://127.0.0.1:1", work, tmp_path / "store", print)


def test_workers_of_one_host_name_measure_the_same_or_are_refused(tmp_path: Path) -> None:
    results: dict[str, Result] = {}

    def come(name: str, machine: str = "node", **told: object) -> None:
        made = synthetic.program(rounds=2)
        made.experiments[0].id = f"replay/{name}"
        made.fingerprint = {**made.fingerprint, **told}
        save(made, tmp_path / "sent.json.gz")
        cluster._add(results, machine, (tmp_path / "sent.json.gz").read_bytes(), tmp_path, "request")

    come("one")
    for told, said in (
        ({"thp": "always"}, "the mode of huge pages: 'madvise' and 'always'"),
        ({"libc": "glibc 2.44"}, "libc: 'glibc 2.36' and 'glibc 2.44'"),
        ({"libraries": {"freestone": "ef" * 32}}, "another freestone"),
    ):
        with pytest.raises(UserError, match=f"host name node do not measure the same: {said}"):
            come("two", **told)
    come("two")
    come("three", "other", thp="always")
    stored = [[e.id for e in load(tmp_path / f"{name}.json.gz").experiments] for name in ("node", "other")]
    assert stored == [["replay/one", "replay/two"], ["replay/three"]]
