"""Servers, spoken to over sockets in the scratch folder."""

from __future__ import annotations

import hashlib
import re
import socket
import time
from pathlib import Path

from preload.program import Program, sample_text
from preload.session import Session


def accepts(path: Path) -> bool:
    """Whether a server listens; the socket's file is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


BENCHMARKS = "set,get,incr,lpush,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset,xadd"
SCRIPT = (
    "local t = {} for i = 1, 3000 do t[i] = string.rep('y', i % 300) redis.call('HSET', KEYS[1], i, t[i]) end "
    "return {#table.concat(t), redis.sha1hex(cjson.encode(t)), redis.call('HLEN', KEYS[1]), #cmsgpack.pack(t)}"
)


def redis(session: Session, name: str = "redis") -> str:
    """All that the server does with memory: its threads, scripts, children, files, and what it says of memory."""
    path = session.folder / "redis.sock"
    commands = []
    for i in range(4_000):
        commands += [
            f"SET key:{i} {'v' * (i * 7 % 500)}",
            f"RPUSH list:{i % 50} {i}",
            f"HSET hash:{i % 40} field{i} {'h' * (i % 90)}",
            f"APPEND key:{i % 300} {'z' * (i % 700)}",
            f"ZADD zset:{i % 20} {i * 7919 % 10007} m{i}",
            f"SADD set:{i % 30} s{i % 1000}",
        ]
        if i % 3 == 0:
            commands.append(f"DEL key:{i // 2}")
    commands += [
        "DBSIZE",
        "LRANGE list:7 0 40",
        "HLEN hash:3",
        "ZRANGE zset:5 0 60 WITHSCORES",
        "STRLEN key:299",
        "SCARD set:9",
        f'EVAL "{SCRIPT}" 1 scripted',
        "DEBUG RELOAD",
        "CONFIG SET activedefrag yes",  # Debian's jemalloc has no hints for it, and the answer says so
        "MEMORY PURGE",
    ]
    options = f"--port 0 --unixsocket {path} --save '' --dir {session.folder} --io-threads 4 --appendonly yes".split()
    options += ["--io-threads-do-reads", "yes", "--auto-aof-rewrite-percentage", "0"]
    if " v=6." not in session.run(f"{name}-server", "--version"):  # since 7 it wants to be told
        options += ["--enable-debug-command", "yes"]

    def ask(*words: str) -> str:
        return session.run(f"{name}-cli", "-s", path, *words)

    def until(section: str, *wanted: str) -> None:
        while any(line not in ask("INFO", section).split() for line in wanted):
            time.sleep(0.05)

    answers = []
    with session.server(f"{name}-server", *options, ready=lambda: accepts(path)):
        answers.append(session.run(f"{name}-cli", "-s", path, text="\n".join(commands) + "\n"))
        words = f"--csv -n 3000 -c 20 -P 8 -r 500 -t {BENCHMARKS}".split()
        speeds = session.run(f"{name}-benchmark", "-s", path, *words)
        answers += [line.split(",")[0] for line in speeds.splitlines()]
        ask("FLUSHDB", "ASYNC")
        session.run(f"{name}-cli", "-s", path, text="\n".join(commands[:-4]) + "\n")
        ask("BGSAVE")
        until("persistence", "rdb_bgsave_in_progress:0", "rdb_last_bgsave_status:ok")
        ask("BGREWRITEAOF")
        until("persistence", "aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok")
        figures = dict(line.split(":", 1) for line in ask("INFO", "memory").split() if ":" in line)
        ratio = int(figures["allocator_allocated"]) / int(figures["used_memory"])
        answers += [figures["mem_allocator"], "true" if 0.8 < ratio < 2 else f"allocated / used: {ratio}"]
        answers += [str(len(ask("MEMORY", word)) > 20) for word in ("DOCTOR", "MALLOC-STATS", "STATS")]
        answers.append(ask("DEBUG", "DIGEST"))
    with session.server(f"{name}-server", *options, ready=lambda: accepts(path)):  # from its files
        while (digest := ask("DEBUG", "DIGEST")) != answers[-1] and "LOADING" in digest:
            time.sleep(0.05)
        checked = session.run(f"{name}-check-rdb", "dump.rdb")
        return "\n".join([*answers, digest, *re.findall(r"\d+ keys read", checked)])


def valkey(session: Session) -> str:
    return redis(session, "valkey")


NGINX = """
daemon off; worker_processes 2; error_log stderr warn; pid {folder}/nginx.pid; {user}
events {{ worker_connections 64; }}
http {{
  access_log off; gzip on; gzip_min_length 1; gzip_types *;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen unix:{folder}/nginx.sock; root {folder}/www;
    location ~ /echo/(.*) {{ return 200 "you asked for $1 of $host\\n"; }}
  }}
}}
"""


def fetch(path: Path, url: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(
            f"GET {url} HTTP/1.1\r\nHost: here\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
        )
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts).partition(b"\r\n\r\n")[2]


def nginx(session: Session) -> str:
    www = session.folder / "www"
    www.mkdir()
    (www / "page.txt").write_text(sample_text(2000))
    session.folder.chmod(0o755)
    path = session.folder / "nginx.sock"
    conf = session.write("nginx.conf", NGINX.format(folder=session.folder, user="user root;"))
    session.run("nginx", "-t", "-p", session.folder, "-c", conf)
    bodies = hashlib.sha256()
    with session.server("nginx", "-p", session.folder, "-c", conf, ready=lambda: accepts(path)):
        for i in range(150):
            bodies.update(fetch(path, "/page.txt" if i % 3 else f"/echo/{'e' * i}"))
    return bodies.hexdigest()


PROGRAMS: dict[str, Program] = {
    "redis": Program(("redis-server", "redis-cli", "redis-benchmark"), "redis-", redis),
    "valkey": Program(("valkey-server", "valkey-cli", "valkey-benchmark"), "valkey-", valkey),
    "nginx": Program(("nginx",), "nginx", nginx),
}
