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

from freestone_lab.attacks import campaign, trials
from freestone_lab.core import paths

LIMIT_S = 0.3
HANG_S = 1200.0  # what takes longer hangs
RUNNER = """
import sys
import signal
from freestone_lab.attacks import trials
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)  # nohup starts its programs with SIGHUP ignored
print("started", flush=True)
with trials.attacking():
    trials.spawn([sys.argv[1], "hang"], {}, 600.0)
"""


@pytest.fixture(scope="module")
def program() -> str:
    return str(campaign.build_program())


@pytest.mark.parametrize("how", ["", "closed", "flood", "child"])
def test_process_that_does_not_end_is_ended_at_its_limit(program: str, how: str) -> None:
    began = time.monotonic()
    with trials.attacking():
        outcome = trials.spawn([program, "hang", *filter(None, [how])], dict(os.environ), LIMIT_S)
    assert outcome.timed_out
    assert "OWNER" in outcome.markers
    assert LIMIT_S <= time.monotonic() - began < HANG_S
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
        assert runner.wait(HANG_S) != 0
    finally:
        runner.kill()
        runner.stdout.close()
    child.wait(HANG_S)
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
        assert runner.wait(HANG_S) != 0
    finally:
        runner.kill()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "result.json").exists()


def _wait_for_child(pid: int) -> psutil.Process:
    while (runner := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
        for child in runner.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # the runner's other children end when they like
                if child.name() in ("freestone-attac", "freestone-attack"):
                    return child
        time.sleep(0.01)
    raise AssertionError("it ended before an attack was started")


def _attacks_left() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
