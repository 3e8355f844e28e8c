"""Six servers from start to card: redis, nginx, PostgreSQL, memcached, one of Python and one of Node."""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_tools import CLI
from server_tools import free_port, need, write_nginx

from freestone_lab.core import paths
from freestone_lab.core.result_file import load
from freestone_lab.measure import tree

pytestmark = pytest.mark.programs

PROGRAMS = Path(__file__).parents[1] / "programs"


@dataclass(frozen=True)
class Case:
    server: str
    ready: str
    load: str
    stop: str = "TERM"
    rate: bool = True
    more: tuple[str, ...] = ()


def redis(port: int, folder: Path) -> Case:
    need("redis-server", "redis-benchmark")
    server = f"redis-server --port {port} --save '' --appendonly no --dir {folder}"
    return Case(server, str(port), f"redis-benchmark -p {port} -n 20000 -t set,get --csv")


def nginx(port: int, folder: Path) -> Case:
    need("nginx", "ab")
    write_nginx(folder, port)
    url = f"http://127.0.0.1:{port}/"
    return Case(f"nginx -p {folder}/ -c nginx.conf", url, f"ab -q -n 5000 -c 8 {url}", "QUIT")


def postgres(port: int, folder: Path) -> Case:
    need("pgbench", "setpriv")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("not installed: postgresql")
    user = ""
    if os.geteuid() == 0:
        user = "setpriv --reuid=postgres --regid=postgres --clear-groups "
    data = folder / "data"
    make = f"{user}{programs[-1]}/initdb -A trust -U postgres -D {data}"
    subprocess.run(make.split(), check=True, capture_output=True)
    server = f"{user}{programs[-1]}/postgres -D {data} -p {port} -k {folder} -c listen_addresses=127.0.0.1"
    here = f"-h 127.0.0.1 -p {port} -U postgres"
    started = subprocess.Popen(server.split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while subprocess.run(["pgbench", "-i", "-q", *here.split(), "postgres"], capture_output=True).returncode:
            assert started.poll() is None
    finally:
        started.send_signal(2)
        started.wait()
    # Its port is open before it takes connections.
    return Case(server, "ready to accept connections", f"pgbench {here} -n -c 2 -t 200 postgres", "INT")


def memcached(port: int, _: Path) -> Case:
    need("memcached")
    user = "-u nobody " if os.geteuid() == 0 else ""
    loader = f"{sys.executable} {PROGRAMS / 'memcached_load.py'} {port} 4000"
    return Case(f"memcached {user}-l 127.0.0.1 -p {port}", f":{port}", loader, rate=False)


def memcached_counted(port: int, folder: Path) -> Case:
    case = memcached(port, folder)
    load = f"sh -c '{case.load} && echo 8,000 requests'"
    return dataclasses.replace(case, load=load, rate=True, more=("--requests-from", "^([0-9,]+) requests$"))


def python(port: int, _: Path) -> Case:
    need("ab")
    server = f"{Path(sys.executable).resolve()} {PROGRAMS / 'serve_http.py'} {port}"
    return Case(server, str(port), f"ab -q -n 300 -c 2 http://127.0.0.1:{port}/")


def node(port: int, _: Path) -> Case:
    need("node", "ab")
    server = f"node {PROGRAMS / 'serve_http.js'} {port}"
    return Case(server, "ready to serve", f"ab -q -n 1000 -c 2 http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "make", [redis, nginx, postgres, memcached, memcached_counted, python, node], ids=lambda make: make.__name__
)
def test_a_server_is_measured_under_load(make: object, tmp_path: Path) -> None:
    assert callable(make)
    built = paths.build_dir() / "libfreestone.so"
    if not built.exists():
        pytest.skip("libfreestone.so is not built")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="freestone-server-") as folder:  # that another user may enter
        Path(folder).chmod(0o777)
        library = Path(shutil.copy(built, folder))
        measure_one(make(port, Path(folder)), port, library, tmp_path)


def measure_one(case: Case, port: int, library: Path, tmp_path: Path) -> None:
    words = ["--only", f"own={library}", "--runs", "3", "--idle", "300ms", "--json", "r.json"]
    words += [*case.more, "--server", case.server, "--ready", case.ready, "--load", case.load, "--stop", case.stop]
    env = {**os.environ, "FREESTONE_ROOT": str(paths.root())}
    done = subprocess.run([*CLI, "advise", *words], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert ": a server" in done.stderr
    assert len(done.stdout.strip().splitlines()) <= 10
    assert ("requests " in done.stdout) == ("CPU time of the server per request" in done.stdout) == case.rate
    experiment = load(tmp_path / "r.json").experiments[0]
    good = [s for s in experiment.samples if s.round > 0]
    assert good and all(s.status == "ok" for s in good), [s.detail for s in good]
    for sample in good:
        assert {"wall", "rss", "rss_after", "cpu"} <= set(sample.figures)
        assert ("requests" in sample.figures) == ("cpu_per_request" in sample.figures) == case.rate
    assert all("rss_idle" in s.figures for s in good if s.round == 1)
    assert any(len(s.series.get("rss", [])) > 5 for s in good), "resident memory over time"
    assert not tree.port_is_taken(port), "nothing is left running"
