"""The cost of the checked memcpy: what the check adds to libc's instructions, per size and place."""

from __future__ import annotations

from freestone_lab.core.result import Experiment, Peer, Result, Sample
from freestone_lab.docs import memory_table
from freestone_lab.workloads import memory_cost


def test_the_table_shows_what_the_check_adds() -> None:
    peers = [Peer(memory_cost.LIBC, None), Peer(memory_cost.CHECKED, "lib.so")]
    result = Result("", ["freestone", "bench", "memory-calls"], 0, {}, peers)
    for place, added in zip(memory_cost.PLACES, (60, 18), strict=True):
        for size in memory_cost.SIZES:
            figures = {memory_cost.LIBC: size + 10.0, memory_cost.CHECKED: size + 10.0 + added}
            samples = [Sample(name, 0, "ok", figures={"instructions": figure}) for name, figure in figures.items()]
            params = {"bytes": size, "place": place}
            result.experiments.append(Experiment(f"{place}={size}", memory_cost.WORKLOAD, params, samples=samples))
    table = memory_table.table(result)
    assert "| 8 | 18 | +60 | +18 |" in table
    assert "| 1,048,576 | 1,048,586 | +60 | +18 |" in table
