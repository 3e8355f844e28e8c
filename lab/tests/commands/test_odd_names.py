"""Programs whose names are no UTF-8, or are none once the kernel has cut them after 15 bytes."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_tools import CLI, LIBRARY

pytestmark = pytest.mark.all

SOURCE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char** words) {
  for (int i = 0; i < 4000; ++i) memset(malloc(1000), 1, 1000);
  usleep(200000);  /* long enough to be looked at while it runs */
  return count > 1 ? (write(1, "r", 1), pause()) : 0;
}
"""
COMMANDS = {
    "compare": ["compare", "--rounds", "1", "--only", "glibc", "--json", "out.json", "-o", "out.html", "--"],
    "record": ["record", "-o", "out.fst", "--"],
    "leaks": ["leaks", "--error", "0", "--"],
    "profile": ["profile", "--sample-bytes", "1000", "-o", "out.html", "--"],
}


@pytest.fixture(params=["программа".encode(), b"pr\xe9"], ids=["cut", "bytes"])
def odd(request: pytest.FixtureRequest, tmp_path: Path, compile_to_preload: Callable[[str, str], Path]) -> Path:
    program = tmp_path / os.fsdecode(request.param)
    program.write_bytes(compile_to_preload("odd.c", SOURCE).read_bytes())
    program.chmod(0o755)
    return program


def freestone(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*CLI, *words], cwd=folder, capture_output=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_serves_it_like_any_other(odd: Path, command: str) -> None:
    done = freestone(odd.parent, *COMMANDS[command], str(odd))
    assert b"Traceback" not in done.stderr
    assert done.returncode in ((0, 1) if command == "compare" else (0,)), done.stderr  # one round decides nothing
    if command == "record":
        assert freestone(odd.parent, "trace", "check", "out.fst").returncode == 0


def test_its_metrics_are_utf8_and_the_agent_serves_it(odd: Path) -> None:
    conf = f"live_page:true,stats_file:{odd.parent}/out.prom"
    env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "FREESTONE_CONF": conf}
    subprocess.run([str(odd)], env=env, check=True)
    assert odd.name[:2] in (odd.parent / "out.prom").read_text(encoding="utf-8")
    with subprocess.Popen([str(odd), "wait"], env=env, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None and running.stdout.read(1) == b"r"
            done = freestone(odd.parent, "agent", "--once")
        finally:
            running.kill()
    assert done.returncode == 0, done.stderr
    assert b"freestone_live_bytes" in done.stdout
