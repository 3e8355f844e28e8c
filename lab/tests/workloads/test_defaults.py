"""The programs of a plain `compare`: short, one process each, and CPU time that is work."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import workload_tools

from freestone_lab.engine.plan import Task
from freestone_lab.workloads import defaults, tasks

SHORT_S = 0.6  # of CPU time; 0.05 to 0.09 s where nobody else works


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    monkeypatch.setattr(tasks, "workload_program", workload_tools.program)
    return defaults.tasks(tmp_path)


def cpu_seconds(job: Task) -> float:
    before = os.times()
    with (job.stdin or Path(os.devnull)).open("rb") as stdin:
        subprocess.run(job.argv, env={**os.environ, **job.env}, stdin=stdin, capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_each_program_is_short_so_that_the_budget_holds_many_rounds(jobs: list[Task]) -> None:
    assert Counter(job.id for job in jobs)["python"] == 1 and len(jobs) >= 3
    for job in jobs:
        assert min(cpu_seconds(job) for _ in range(3)) < SHORT_S, job.id
        assert job.seconds <= 0.1, job.id


def test_the_compiler_is_one_process_which_can_be_pinned(jobs: list[Task]) -> None:
    compiler = next((job for job in jobs if job.id == "g++"), None)
    if compiler is None:
        pytest.skip("g++ is not installed")
    assert compiler.argv[0].endswith("cc1plus")
    cpu_seconds(compiler)
    assert compiler.output_files[0].stat().st_size > 10_000


def test_threads_that_wait_for_each_other_use_no_cpu_time_for_it(jobs: list[Task]) -> None:
    """A waiting thread that yields is charged with CPU time that no allocator causes."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    server = next(job for job in jobs if job.id == "server")
    words = ["strace", "-f", "-c", "-e", "trace=sched_yield", *server.argv]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    yields = [int(line.split()[3]) for line in said.splitlines() if line.endswith("sched_yield")]
    assert sum(yields) < 100, said  # thousands where threads wait by yielding
