"""Servers are looked at by their number while they serve, and go on serving: redis, Python, C++, Go, Java, Node."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from command_tools import CLI
from server_tools import free_port, need, write_nginx

from freestone_lab.core import paths
from freestone_lab.heap import attach, names, profiling

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
# Each turns its own faults and exceptions into answers, and ends with another status if anything goes wrong.
GO = """
package main
// #include <stdlib.h>
// static void *take(size_t n) { return malloc(n); }
import "C"
import ("bufio"; "fmt"; "os"; "runtime"; "time")
func churn(out chan<- int) {
    for i := 1; ; i++ {
        C.free(C.take(C.size_t(16 + i%3000)))
        table := map[int][]byte{}
        for k := 0; k < 50; k++ { table[k] = make([]byte, k*7) }
        sum := 0
        for _, v := range table { sum += len(v) }
        if sum != 7*49*50/2 { os.Exit(3) }
        if i%100 == 0 { time.Sleep(time.Millisecond); select { case out <- i: default: } }
    }
}
func faults() int {  // the runtime turns a fault into a panic by its SIGSEGV handler
    defer func() { recover() }()
    var p *int
    return *p
}
func main() {
    out := make(chan int)
    for i := 0; i < 4; i++ { go churn(out) }
    lines := bufio.NewScanner(os.Stdin)
    for lines.Scan() { faults(); runtime.GC(); <-out; fmt.Println("ok") }
}
"""
JAVA = """
import java.util.*;
public class Server {
    static volatile Object nothing;
    static void churn() {
        long count = 0;
        while (true) {
            List<String> list = new ArrayList<>();
            for (int i = 0; i < 1000; i++) list.add("text " + i);
            if (!list.get(999).equals("text 999")) System.exit(3);
            try { nothing.hashCode(); } catch (NullPointerException e) { count++; }
            java.nio.ByteBuffer.allocateDirect(5000);
            try { Thread.sleep(1); } catch (InterruptedException e) { System.exit(4); }
        }
    }
    public static void main(String[] words) {
        for (int i = 0; i < 3; i++) { Thread t = new Thread(Server::churn); t.setDaemon(true); t.start(); }
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) System.out.println("ok" + (in.nextLine().isEmpty() ? 1 : ""));
    }
}
"""
NODE = """
const {Worker, isMainThread} = require('worker_threads');
function churn() {
  const kept = [];
  for (let i = 0; i < 200; i++) kept.push(Buffer.allocUnsafeSlow(9000).fill(i));
  for (let i = 0; i < 200; i++) if (kept[i][8999] !== i) process.exit(3);
}
setInterval(churn, 2).unref();
if (isMainThread) {
  const worker = new Worker(__filename, {stdin: true});
  worker.on('exit', code => { if (code) process.exit(5); });
  const lines = require('readline').createInterface({input: process.stdin});
  lines.on('line', line => setTimeout(() => console.log('ok'), 1));
  lines.on('close', () => process.exit(0));
} else setInterval(churn, 2);
"""
LANGUAGES = {"go": ("main.go", GO), "java": ("Server.java", JAVA), "node": ("server.js", NODE)}


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
    assert not attach.Process(pid).is_sampling()
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
    script = "import time; print('ready', flush=True)\nwhile True: bytes(3000); time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            profile = profiling.look([server.pid], 1 << 20, 0.3)[0]
        finally:
            server.kill()
    assert any("PYTHONMALLOC=malloc" in note for note in profile.notes)


@pytest.mark.programs
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("library", ["libfreestone.so", "libfreestone-hardened.so"])
def test_a_runtime_of_its_own_goes_on(language: str, library: str, tmp_path: Path) -> None:
    """Also when a search for leaks stops its threads by a signal."""
    tool = shutil.which(language)
    if tool is None:
        pytest.skip(f"there is no {language}")
    name, text = LANGUAGES[language]
    (tmp_path / name).write_text(text)
    command = [tool, str(tmp_path / name)]
    if language == "go":
        env = {**os.environ, "CGO_ENABLED": "1", "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
        subprocess.run([tool, "build", "-o", str(tmp_path / "main"), name], env=env, check=True, cwd=tmp_path)
        command = [str(tmp_path / "main")]
    with lines(command, library) as (pid, ask):
        process = attach.Process(pid)
        with asked_meanwhile(ask) as answers, attach.Look(process, 4096) as look:
            while not look.began():
                time.sleep(0.001)
            until = time.monotonic() + 3
            while time.monotonic() < until:
                assert process.statistics().pid == pid and process.profile()
                assert b'"scanned": true' in process.leaks()
        assert ask(1) == "ok\n" and set(answers) == {"ok\n"}


PHP = "[global]\nerror_log={0}/php.log\n[www]\nlisten={0}/php.sock\nuser=root\npm=static\npm.max_children=2\n"
# By name: its program, and a script that starts it in the folder $1, for a server that waits for its first request.
SERVICES = {
    "redis-server": ("redis-server", "exec redis-server --port 0 --unixsocket $1/redis.sock --save '' --dir $1"),
    "nginx": ("nginx", "exec nginx -c $1/nginx.conf"),
    "php-fpm": ("php-fpm8.2", "exec php-fpm8.2 -n -F -R -y $1/php.conf"),
    "postgres": (
        "postgres",
        "b=$(dirname $(readlink -f $(command -v postgres))); chmod 777 $1; as='setpriv --reuid=65534 --clear-groups'; "
        "LD_PRELOAD= $as $b/initdb -D $1/pg >$1/log; exec $as $b/postgres -D $1/pg -k $1 -c listen_addresses=",
    ),
    "mariadbd": (
        "mariadbd",
        "LD_PRELOAD= mariadb-install-db --no-defaults --user=root --datadir=$1/db >$1/log; "
        "exec mariadbd --no-defaults --user=root --datadir=$1/db --skip-networking --socket=$1/db.sock",
    ),
    "gunicorn": ("gunicorn", "exec gunicorn -b unix:$1/g.sock --chdir $1 app:app"),
    "node": ("node", "exec node -e 'require(\"http\").createServer(() => 0).listen(process.argv[1])' $1/node.sock"),
    "java": ("java", "exec java $1/Idle.java"),
}
IDLE_JAVA = "public class Idle { public static void main(String[] a) throws Exception { Thread.sleep(1000000000L); } }"


@pytest.mark.programs
@pytest.mark.parametrize("library", ["libfreestone.so", "libfreestone-hardened.so"])
def test_eight_idle_services_are_seen(library: str) -> None:
    need(*(program for program, _ in SERVICES.values()))
    if os.geteuid() != 0:
        pytest.skip("the services change their user")
    folder = Path(tempfile.mkdtemp(prefix="fst"))  # other users reach it
    (folder / "php.conf").write_text(PHP.format(folder))
    (folder / "app.py").write_text("def app(environ, start): return []\n")
    (folder / "Idle.java").write_text(IDLE_JAVA)
    write_nginx(folder, free_port())
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        children = {}
        for name, (_, script) in SERVICES.items():
            with (folder / f"{name}.out").open("w") as out:
                command, env = ["sh", "-c", script, "sh", str(folder)], _environment(library)
                child = children[name] = subprocess.Popen(command, env=env, stdout=out, stderr=out)
            ends.callback(child.wait)
            ends.callback(child.terminate)
        sockets = [folder / x for x in ("redis.sock", "php.sock", ".s.PGSQL.5432", "db.sock", "g.sock", "node.sock")]
        while not all(path.exists() for path in sockets) or "java" not in names.command_line(children["java"].pid):
            ended = [name for name, child in children.items() if child.poll() is not None]
            assert not ended, [(name, (folder / f"{name}.out").read_text()) for name in ended]
            time.sleep(0.1)
        time.sleep(2)  # the last work of their start
        text = subprocess.run([*CLI, "agent", "--once", "--all"], capture_output=True, text=True, check=True).stdout
        for name, child in children.items():
            found = re.search(rf'^freestone_processes\{{[^}}]*program="{name}[^"]*"\}} (\d+)$', text, re.MULTILINE)
            assert found and int(found[1]) > 0, (name, text[:3000])
            done = subprocess.run([*CLI, "stats", str(child.pid)], capture_output=True, text=True, check=True)
            said = done.stdout
            assert re.match(rf"{name}.* process {child.pid} ", said) and "live blocks" in said, said
