"""Go with cgo, Java, Node, Python and nginx are looked at without a pause, and go on; some lookers are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.heap import attach, profiling, visiting
from freestone_lab.heap.attach import Process
from freestone_lab.heap.visiting import Errand

pytestmark = pytest.mark.programs
both = pytest.mark.parametrize("library", ["libfreestone.so", "libfreestone-hardened.so"])

GO = """
package main
// #include <stdlib.h>
// static void *take(size_t n) { return malloc(n); }
import "C"
import ("bufio"; "fmt"; "os"; "os/signal"; "runtime"; "syscall"; "time")
func churn(out chan<- int) {
    for i := 1; ; i++ {
        block := C.take(C.size_t(16 + i%3000))
        C.free(block)
        table := map[int][]byte{}
        for k := 0; k < 50; k++ { table[k] = make([]byte, k*7) }
        sum := 0
        for _, v := range table { sum += len(v) }
        if sum != 7*49*50/2 { fmt.Println("wrong sum", sum); os.Exit(3) }
        if i%100 == 0 { time.Sleep(time.Millisecond); select { case out <- i: default: } }
    }
}
func faults() int {  // the runtime turns a fault into a panic by its SIGSEGV handler
    defer func() { recover() }()
    var p *int
    return *p
}
func main() {
    signal.Ignore(syscall.SIGUSR1)
    out := make(chan int)
    for i := 0; i < 4; i++ { go churn(out) }
    fmt.Println("ok up")
    lines := bufio.NewScanner(os.Stdin)
    for lines.Scan() { faults(); runtime.GC(); <-out; fmt.Println("ok", lines.Text()) }
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
        System.out.println("ok up");
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) System.out.println("ok " + in.nextLine());
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
  process.on('SIGUSR2', () => {});
  console.log('ok up');
  const lines = require('readline').createInterface({input: process.stdin});
  lines.on('line', line => setTimeout(() => console.log('ok ' + line), 1));
  lines.on('close', () => process.exit(0));
} else setInterval(churn, 2);
"""
PYTHON = """
import signal, sys, threading, time
signal.signal(signal.SIGUSR1, lambda *a: None)
def churn():
    while True:
        kept = [bytes([n]) * 3000 for n in range(200)]
        if any(block[2999] != n for n, block in enumerate(kept)): sys.exit(3)
        time.sleep(0.001)
for _ in range(3): threading.Thread(target=churn, daemon=True).start()
print("ok up", flush=True)
for line in sys.stdin: print("ok", line.strip(), flush=True)
"""

Ask = Callable[[], None]


def signals(pid: int) -> dict[str, list[str]]:
    """Each thread's blocked signals, and what the process ignores and handles."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            lines = (task / "status").read_text(errors="surrogateescape").splitlines()
            found[task.name] = [line for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    return found


def settled_signals(pid: int) -> dict[str, list[str]]:
    """Only those that stay so: a thread that Go has just started blocks all signals for a while."""
    first = signals(pid)
    time.sleep(0.5)
    return {tid: found for tid, found in signals(pid).items() if first.get(tid) == found}


def killed_look(process: Process, draw: random.Random) -> None:
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            while True:
                for tid in process.threads():
                    process._visit_on(tid, Errand.is_profiling, 0)
        os._exit(1)
    time.sleep(draw.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def look_and_kill(pids: list[int], ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visiting, "THREAD_WAITS_MS", 5)
    draw = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    for pid in pids:
        process = Process(pid)
        ask()
        before = settled_signals(pid)
        until = time.monotonic() + 3
        visits = 0
        while visits < 50 or time.monotonic() < until:
            visits += sum(process._visit_on(tid, Errand.is_profiling, 0) is not None for tid in process.threads())
            ask()
        for _ in range(100):
            killed_look(process, draw)
        ask()
        assert profiling.look([pid], 4096, 0.5)[0].sample_types
        assert process.leaks()
        with attach.shown(pid):
            ask()
        ask()
        # A thread in sigsuspend goes on with another mask; it comes back to it in time.
        until = time.monotonic() + 20
        while time.monotonic() < until and differing(before, signals(pid)):
            time.sleep(0.01)
        assert not differing(before, signals(pid))


def differing(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    return [f"{tid}: {before[tid]}, {after[tid]}" for tid in before if after.get(tid, before[tid]) != before[tid]]


@contextmanager
def lines(command: list[str], library: str, extra: dict[str, str] | None = None) -> Iterator[tuple[int, Ask]]:
    env = {**os.environ, **(extra or {}), "LD_PRELOAD": str(paths.build_dir() / library)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True, bufsize=1) as server:
        assert server.stdin is not None and server.stdout is not None
        asked, answered = server.stdin, server.stdout
        try:
            assert answered.readline() == "ok up\n"
            count = [0]

            def ask() -> None:
                count[0] += 1
                asked.write(f"{count[0]}\n")
                assert answered.readline() == f"ok {count[0]}\n"

            yield server.pid, ask
            asked.close()
            assert server.wait() == 0
        finally:
            server.kill()


@pytest.mark.parametrize("language", ["go", "java", "node", "python"])
@both
def test_a_program_goes_on(language: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = sys.executable if language == "python" else shutil.which(language)
    if tool is None:
        pytest.skip(f"there is no {language}")
    source = tmp_path / {"go": "main.go", "java": "Server.java", "node": "server.js", "python": "server.py"}[language]
    source.write_text({"go": GO, "java": JAVA, "node": NODE, "python": PYTHON}[language])
    command = [tool, str(source)]
    if language == "go":
        env = {**os.environ, "CGO_ENABLED": "1", "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
        subprocess.run([tool, "build", "-o", str(tmp_path / "main"), str(source)], env=env, check=True, cwd=tmp_path)
        command = [str(tmp_path / "main")]
    with lines(command, library, {"PYTHONMALLOC": "malloc"} if language == "python" else None) as (pid, ask):
        look_and_kill([pid], ask, monkeypatch)


@both
def test_nginx_goes_on(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nginx = shutil.which("nginx")
    if nginx is None:
        pytest.skip("there is no nginx")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "logs").mkdir()
    conf = tmp_path / "nginx.conf"
    conf.write_text(
        f"daemon off; worker_processes 2; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {tmp_path}/b; proxy_temp_path {tmp_path}/p;\n"
        f"fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ return 200 served; }} }} }}\n"
    )
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / library)}
    with subprocess.Popen([nginx, "-p", str(tmp_path), "-c", str(conf)], env=env) as master:
        try:

            def ask() -> None:
                for attempt in range(200):
                    with suppress(OSError):
                        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/").read() == b"served"
                        return
                    assert master.poll() is None and attempt < 199
                    time.sleep(0.02)

            ask()
            children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
            look_and_kill([master.pid, *map(int, children)], ask, monkeypatch)
            errors = (tmp_path / "error.log").read_text()
            assert "alert" not in errors and "emerg" not in errors, json.dumps(errors)
            assert Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split() == children
        finally:
            master.terminate()
            assert master.wait() == 0
