"""The agent: one scrape for a machine, by service, of processes that live; heap profiles pushed while servers serve."""

import email
import gzip
import http.server
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from server_tools import free_port, runs

from freestone_lab.core import paths
from freestone_lab.flamegraph import pprof
from freestone_lab.heap import attach, loaded, metrics, snapshot
from freestone_lab.heap import machine_agent as agent

SERVER = r"""
#include <cstdlib>
#include <cstring>
#include <unistd.h>
static void* kept[1000];
__attribute__((noinline)) void hold() {
  for (void*& block : kept) memset(block = malloc(20000), 1, 20000);
}
int main() {
  if (write(2, "up\n", 3) != 3) return 4;
  for (;;) {
    for (void* block : kept) free(block);
    hold();
    usleep(10000);
  }
}
"""

SLEEPING = r"""
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  void *block = malloc(9);
  if (write(2, "up\n", 3) != 3) return 4;
  for (;;) pause(), free(block);
}
"""


@pytest.fixture(scope="module")
def server(compile_to_preload: Callable[[str, str], Path]) -> Path:
    return compile_to_preload("holding.cc", SERVER)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The processes that agents of the test see. Other tests run beside it, and theirs are not to be looked into."""
    folder = tmp_path / "proc"
    folder.mkdir()
    monkeypatch.setattr(agent, "PROC", folder)
    return folder


def show(proc: Path, child: subprocess.Popen[bytes]) -> None:
    (proc / str(child.pid)).symlink_to(f"/proc/{child.pid}")


@pytest.fixture
def two(server: Path, proc: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    conf = "live_page:true"
    with runs(server, FREESTONE_CONF=conf) as one, runs(server, FREESTONE_CONF=conf) as other:
        show(proc, one)
        show(proc, other)
        yield [one, other]


def until(met: Callable[[], bool]) -> None:
    while not met():
        time.sleep(0.05)


def test_every_figure_of_the_library_has_its_type_and_help() -> None:
    source = (paths.root() / "allocator/src/report/figures.def").read_text()
    rows = re.findall(r'^FIGURE\((\w+), (\w+),\s+"([^"]+)"\)$', source, re.MULTILINE)
    assert {name: (kind, text) for name, kind, text in rows} == metrics.FIGURES


def test_processes_of_a_service_are_one_sample_and_the_dead_are_gone(two: list[subprocess.Popen[bytes]]) -> None:
    def processes() -> int:
        found = re.search(r'^freestone_processes\{[^}]*program="holding"\} (\d+)$', agent.scrape(), re.MULTILINE)
        return int(found[1]) if found else 0

    until(lambda: processes() == 2)
    assert "pid=" not in agent.scrape()
    two[0].kill()
    two[0].wait()
    until(lambda: processes() == 1)


@pytest.mark.all
def test_promtool_accepts_the_metrics_but_for_two_units_that_are_promised(two: list[subprocess.Popen[bytes]]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here: Debian's package prometheus")
    until(lambda: "holding" in agent.scrape())
    done = subprocess.run(["promtool", "check", "metrics"], input=agent.scrape(), capture_output=True, text=True)
    assert done.stdout == "" and sorted(done.stderr.splitlines()) == [
        f"freestone_{name}_total metric names should not contain abbreviated units"
        for name in ("purge_cost_ns", "worked_ms")  # docs/STABILITY.md keeps the names of 1.0
    ]


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/redis-server.service\n", "redis-server"),
        ("0::/system.slice/docker-" + "a1b2c3d4e5f6" * 5 + "abcd.scope\n", "a1b2c3d4e5f6"),
        ("0::/kubepods/burstable/pod1/" + "0123456789ab" * 5 + "0123\n", "0123456789ab"),
        ("12:memory:/system.slice/nginx.service\n0::/init.scope\n", "nginx"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", "app"),
        ("0::/\n", "app"),
    ],
)
def test_the_service_is_the_unit_or_the_container_else_the_program(cgroup: str, expected: str) -> None:
    assert metrics.service_of(cgroup, "app") == expected


def test_labels_are_escaped() -> None:
    text = metrics.render([('a"b\\c', snapshot.Snapshot(1, "p", "", "", 0, {"live_bytes": 5.0}))])
    assert 'service="a\\"b\\\\c"' in text


AGENT = (
    "import pathlib, sys; from freestone_lab import cli; from freestone_lab.heap import machine_agent\n"
    "machine_agent.PROC = pathlib.Path(sys.argv.pop(1)); cli.main()"
)


def run_agent(proc: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    command = ["env", "--ignore-signal=HUP", sys.executable, "-c", AGENT, str(proc), "agent"]
    command += ["--listen", "127.0.0.1:0", *words]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    address = child.stderr.readline().strip().removeprefix("freestone agent: ")
    return child, address


def test_the_command_serves_and_asks_every_process_to_show_itself(server: Path, proc: Path) -> None:
    with runs(server) as silent:
        show(proc, silent)
        serving, address = run_agent(proc, "--all", "--every", "50ms")
        serving.send_signal(signal.SIGHUP)  # which it ignores as under nohup
        try:
            until(lambda: b'program="holding"' in urllib.request.urlopen(address).read())
            assert silent.poll() is None
        finally:
            serving.terminate()
            assert serving.wait() == 0


def test_idle_processes_are_counted_and_those_that_cannot_be_read(
    compile_to_preload: Callable[[str, str], Path], proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compile_to_preload("sleeping.c", SLEEPING)
    with ExitStack() as idle:
        children = [idle.enter_context(runs(program)) for _ in range(3)]
        for child in children:
            show(proc, child)
        refused, real = children[2].pid, loaded.memory_of
        monkeypatch.setattr(attach, "memory_of", lambda pid: real(pid if pid != refused else -1))
        complaints: list[str] = []
        text = agent.scrape(True, complaints.append)
        assert re.search(r'^freestone_processes\{[^}]*program="sleeping"\} 2$', text, re.MULTILINE), text
        assert re.search(r'^freestone_processes_unread\{[^}]*program="sleeping"\} 1$', text, re.MULTILINE), text
        assert len(complaints) == 1


@pytest.mark.all
def test_a_real_prometheus_scrapes_it(two: list[subprocess.Popen[bytes]], proc: Path, tmp_path: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("no prometheus here: Debian's package prometheus")
    serving, address = run_agent(proc)
    target = address.removeprefix("http://").removesuffix("/metrics")
    (tmp_path / "p.yml").write_text(
        f"scrape_configs:\n- job_name: f\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n"
        f"  static_configs: [{{targets: ['{target}']}}]\n"
    )
    port = free_port()
    command = [prometheus, f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/db"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    store = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def has_sample() -> bool:
        assert store.poll() is None
        try:
            url = f"http://127.0.0.1:{port}/api/v1/query?query=freestone_live_bytes"
            answer = json.load(urllib.request.urlopen(url))
        except OSError:
            return False
        return any(row["metric"]["program"] == "holding" for row in answer["data"]["result"])

    try:
        until(has_sample)
    finally:
        for child in (store, serving):
            child.terminate()
            child.wait()


def test_pushed_profiles_are_pprof_with_names_inside(two: list[subprocess.Popen[bytes]], proc: Path) -> None:
    got: list[tuple[str, bytes]] = []

    class Store(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            parts = [p for p in email.message_from_bytes(head + body).walk() if not p.is_multipart()]
            named = {p.get_param("name", header="content-disposition"): p.get_payload(decode=True) for p in parts}
            profile = named["profile"]
            assert isinstance(profile, bytes)
            got.append((self.path, profile))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    pushing, _ = run_agent(proc, "--push", f"http://127.0.0.1:{store.server_address[1]}", "--every", "500ms")
    try:
        names: set[str] = set()
        while "hold" not in names:
            until(lambda: bool(got))
            path, data = got.pop()
            assert path.startswith("/ingest?name=") and "format=pprof" in path
            assert gzip.decompress(data)
            names = {f.function.split("(")[0] for stack, _ in pprof.decode(data, "pushed").samples for f in stack}
        assert all(child.poll() is None for child in two)
    finally:
        pushing.terminate()
        pushing.wait()
        store.shutdown()


def test_the_dashboard_asks_for_metrics_that_the_agent_serves() -> None:
    board = json.loads((paths.root() / "packaging/grafana/freestone.json").read_text())
    wanted = set(re.findall(r"freestone_\w+", json.dumps(board["panels"])))
    text = metrics.render([("s", snapshot.Snapshot(1, "p", "", "", 0, {}, {"mmap": 1}))])
    assert wanted - set(re.findall(r"^(freestone_\w+)\{", text, re.MULTILINE)) == set()
