"""The processes of the attack suite end: at their limit, and with the runner however that dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from freestone_lab import attacks, attacks_processes, paths

LIMIT_S = 0.3
SOON_S = 10.0
RUNNER = """
import sys
from freestone_lab import attacks_processes
print("started", flush=True)
with attacks_processes.attacking():
    attacks_processes.spawn([sys.argv[1], "hang"], {}, 600.0)
"""


@pytest.fixture(scope="module")
def program() -> str:
    return str(attacks.build_program())


@pytest.mark.parametrize("how", ["", "closed", "flood", "child"])
def test_process_that_does_not_end_is_ended_at_its_limit(program: str, how: str) -> None:
    began = time.monotonic()
    with attacks_processes.attacking():
        outcome = attacks_processes.spawn([program, "hang", *filter(None, [how])], dict(os.environ), LIMIT_S)
    assert outcome.timed_out
    assert "OWNER" in outcome.markers
    assert LIMIT_S <= time.monotonic() - began < SOON_S
    assert _attacks_left() == []


def test_process_whose_runner_is_gone_does_not_start(program: str) -> None:
    done = subprocess.run([program, "probe", "--parent", "1"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (6, "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_killed_runner_leaves_no_attack_behind(program: str, number: signal.Signals) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert runner.stdout is not None and runner.stdout.readline() == "started\n"
    try:
        child = _wait_for_child(runner.pid)
        runner.send_signal(number)
        assert runner.wait(SOON_S) != 0
    finally:
        runner.kill()
        runner.stdout.close()
    child.wait(SOON_S)
    assert not child.is_running()


def test_interrupted_suite_ends_soon_and_leaves_no_attack_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "freestone_lab.cli", "bench", "attacks", "glibc", "--seeds", "1000"]
    runner = subprocess.Popen(
        [*command, "-o", str(tmp_path / "result.json")],
        cwd=paths.root(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        child = _wait_for_child(runner.pid)
        runner.send_signal(signal.SIGINT)
        assert runner.wait(SOON_S) != 0
    finally:
        runner.kill()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "result.json").exists()


def _wait_for_child(pid: int) -> psutil.Process:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # the runner's other children end when they like
                if child.name() in ("freestone-attac", "freestone-attack"):
                    return child
        time.sleep(0.01)
    raise AssertionError("no attack was started")


def _attacks_left() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
