"""A redis, a Python and a C++ server are profiled by their number while they serve, and go on serving."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.heap import attach, profiling

Ask = Callable[[int], str]  # one request; what the server answered
PYTHON = """
import sys
kept = {}
def remember(number):
    kept[number % 1000] = [bytes(3000 + number % 100)]
    return len(kept[number % 1000])
for line in sys.stdin:
    print("ok", remember(int(line)), flush=True)
"""
CXX = r"""
#include <iostream>
#include <map>
#include <string>
struct Store {
  std::map<int, std::string> kept;
  __attribute__((noinline)) size_t remember(int number) {
    kept[number % 1000] = std::string(3000 + number % 100, 'x');
    return kept.size();
  }
};
int main() {
  Store store;
  for (int number; std::cin >> number;) std::cout << "ok " << store.remember(number) << std::endl;
}
"""


def _environment(library: str) -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": str(paths.build_dir() / library), "PYTHONMALLOC": "malloc"}


@contextmanager
def lines(command: list[str], library: str) -> Iterator[tuple[int, Ask]]:
    """A server that answers each line of its input by one of its output."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=_environment(library), stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        asked, answered = server.stdin, server.stdout

        def ask(number: int) -> str:
            asked.write(f"{number}\n")
            asked.flush()
            return answered.readline()

        assert ask(0).startswith("ok"), "the loader has not done its work yet before"
        yield server.pid, ask
        asked.close()
        assert server.wait() == 0


@contextmanager
def redis(folder: Path, library: str) -> Iterator[tuple[int, Ask]]:
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    path = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, env=_environment(library), stdout=subprocess.DEVNULL) as server:
        with socket.socket(socket.AF_UNIX) as link:
            while link.connect_ex(str(path)) != 0:
                assert server.poll() is None
                time.sleep(0.02)
            answers = link.makefile("r")

            def ask(number: int) -> str:
                link.sendall(f"SET key:{number % 1000} {'x' * (3000 + number % 100)}\r\n".encode())
                return answers.readline()

            yield server.pid, ask
        server.terminate()
        assert server.wait() == 0


@contextmanager
def asked_meanwhile(ask: Ask) -> Iterator[list[str]]:
    """Requests without a pause, from another thread; the answers so far."""
    answers: list[str] = []
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            answers.append(ask(len(answers)))

    client = threading.Thread(target=load)
    client.start()
    try:
        yield answers
    finally:
        stop.set()
        client.join()


def functions_while_it_serves(pid: int, ask: Ask, wanted: str) -> set[str]:
    """The functions in profiles that are taken under load, until the wanted one is among them."""
    found: set[str] = set()
    while not any(wanted in name for name in found):
        with asked_meanwhile(ask) as answers:
            profile = profiling.look([pid], 4096, 0.3)[0]
        assert answers and all(answer == answers[-1] or answer.startswith("ok") for answer in answers)
        found |= {frame.function for stack, _ in profile.samples for frame in stack}
    assert not attach.Process(pid).is_profiling()
    assert ask(1), "it goes on serving"
    return found


@pytest.mark.parametrize("library", ["libfreestone.so", "libfreestone-hardened.so"])
def test_a_redis_server(tmp_path: Path, library: str) -> None:
    with redis(tmp_path, library) as (pid, ask):
        functions_while_it_serves(pid, ask, "sds")
        assert ask(7) == "+OK\n"


def test_a_python_server_shows_its_own_functions(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(PYTHON)
    with lines([sys.executable, "-I", "-S", str(script)], "libfreestone.so") as (pid, ask):
        found = functions_while_it_serves(pid, ask, "remember")
        assert "<module>" in found and any("PyEval" in name for name in found), "beside the frames of C"


def test_a_cxx_server(compile_to_preload: Callable[[str, str], Path]) -> None:
    with lines([str(compile_to_preload("store_server.cc", CXX))], "libfreestone.so") as (pid, ask):
        found = functions_while_it_serves(pid, ask, "Store::remember(int)")
        assert "main" in found


def test_python_that_keeps_pools_of_its_own_is_told_the_way_out(tmp_path: Path) -> None:
    env = {k: v for k, v in _environment("libfreestone.so").items() if k != "PYTHONMALLOC"}
    script = "import time; print('ready', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            while not (profile := profiling.look([server.pid], 1 << 20, 0.01)[0]).notes:
                pass
        finally:
            server.kill()
    assert any("PYTHONMALLOC=malloc" in note for note in profile.notes)
