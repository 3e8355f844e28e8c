"""redis, nginx and a program of 16 threads are recorded under load: they go on, their traces check, and what it costs.

The costs are processor time with and without the recorder, of the same work in turns; only `timing` judges them.
docs/TRACE.md shows the ones that were stored, from the property `cost` of each test in pytest's report.
"""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from peers_tools import compiled
from server_tools import free_port, need, write_nginx
from trace_tools import recorder

from freestone_lab.core import measured, paths
from freestone_lab.trace import events, recording
from freestone_lab.trace.events import Trace

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not (paths.build_dir() / recording.WRITER).exists(), reason="the recorder is not built"),
]
SERVER_COST, ALLOCATING_COST = 1.1, 1.5
TURNS, LOADS = 35, 5


@dataclass(frozen=True)
class Case:
    server: tuple[str, ...]
    load: tuple[str, ...]


def redis(port: int, folder: Path) -> Case:
    server = ("redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder))
    keys = ("-r", "5000", "-d", "200", "-n", "20000", "-t", "set,get,lpush,lpop", "-P", "8", "-q")
    return Case(server, ("redis-benchmark", "-p", str(port), *keys))


def nginx(port: int, folder: Path) -> Case:
    write_nginx(folder, port, "user root;")
    return Case(
        ("nginx", "-p", f"{folder}/", "-c", "nginx.conf"),
        ("ab", "-q", "-n", "5000", "-c", "8", f"http://127.0.0.1:{port}/"),
    )


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[bytes]
    case: Case
    recorded: bool

    def cpu_ns(self) -> int:
        """Of the server and its workers; the recorder's writer, their parent, is another program."""
        found, todo = 0, self.children(self.process.pid) if self.recorded else [self.process.pid]
        while todo:
            pid = todo.pop()
            found += sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))
            todo += self.children(pid)
        return found

    @staticmethod
    def children(pid: int) -> list[int]:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def ask(self, times: int = 1) -> int:
        """One load, or several; the processor time that it took the server, in nanoseconds."""
        before = self.cpu_ns()
        for _ in range(times):
            subprocess.run(self.case.load, check=True, capture_output=True)
        return self.cpu_ns() - before


@contextmanager
def serving(make: Callable[[int, Path], Case], folder: Path, trace: Path | None) -> Iterator[Running]:
    folder.mkdir()
    port = free_port()
    case = make(port, folder)
    need(case.server[0], case.load[0])
    words, env = list(case.server), None
    if trace:
        words, env = recorder(trace, *case.server)
    with subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        running = Running(process, case, trace is not None)
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        yield running
        for pid in running.children(process.pid) if trace else [process.pid]:
            subprocess.run(["kill", f"-{signal.SIGTERM}", str(pid)], check=True)
        assert process.wait() in (0, 128 + signal.SIGTERM, -signal.SIGTERM)


def checked(trace: Path) -> Trace:
    """Every checksum of it is right. On a busy machine it may have gaps, which it says."""
    found = events.read(trace)
    assert len(found.rows) > 1000
    assert found.summary["gap_seconds"] or found.summary["lost_frees"] == 0
    return found


Note = Callable[[str, object], None]


def judge(costs: list[float], bound: float, note: Note) -> None:
    note("cost", " ".join(f"{cost:.3f}" for cost in costs))
    assert median(costs) <= bound, costs


@pytest.fixture(scope="session", autouse=True)
def of_this_code(record_testsuite_property: Note) -> None:
    record_testsuite_property("version", paths.version())
    record_testsuite_property("code", json.dumps(measured.code(paths.root())))


SERVERS = pytest.mark.parametrize("make", [redis, nginx], ids=lambda make: make.__name__)


@SERVERS
def test_a_server_that_is_recorded_goes_on_serving(make: Callable[[int, Path], Case], tmp_path: Path) -> None:
    with serving(make, tmp_path / "server", tmp_path / "t.fst") as server:
        for _ in range(3):
            server.ask()
    checked(tmp_path / "t.fst")


@SERVERS
@pytest.mark.timing
def test_a_server_hardly_notices(make: Callable[[int, Path], Case], tmp_path: Path, record_property: Note) -> None:
    trace = tmp_path / "t.fst"
    with serving(make, tmp_path / "plain", None) as plain, serving(make, tmp_path / "watched", trace) as watched:
        costs = [watched.ask(LOADS) / plain.ask(LOADS) for _ in range(TURNS)]
    judge(costs, SERVER_COST, record_property)


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).parents[1] / "programs" / "sixteen.c"
    return compiled(tmp_path_factory.mktemp("built") / "sixteen", source, "-O2", "-pthread")


def cpu_seconds(program: Path, blocks: int, trace: Path | None) -> float:
    words, env = [str(program), str(blocks)], None
    if trace:
        words, env = recorder(trace, *words)
    return float(subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout)


def test_sixteen_threads_are_recorded(sixteen: Path, tmp_path: Path) -> None:
    cpu_seconds(sixteen, 100_000, tmp_path / "t.fst")
    trace = checked(tmp_path / "t.fst")
    assert len(np.unique(trace.rows["thread"])) == 17


@pytest.mark.timing
def test_sixteen_threads_pay_at_most_half_as_much_again(sixteen: Path, tmp_path: Path, record_property: Note) -> None:
    blocks, trace = 500_000, tmp_path / "t.fst"
    costs = [cpu_seconds(sixteen, blocks, trace) / cpu_seconds(sixteen, blocks, None) for _ in range(TURNS)]
    judge(costs, ALLOCATING_COST, record_property)
