"""Servers, spoken to over sockets in the scratch folder."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

from preload.program import Program, sample_text
from preload.session import Session


def accepts(path: Path) -> bool:
    """Whether a server listens; the socket's file is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def redis(session: Session) -> str:
    path = session.folder / "redis.sock"
    commands = []
    for i in range(4_000):
        commands += [
            f"SET key:{i} {'v' * (i * 7 % 500)}",
            f"RPUSH list:{i % 50} {i}",
            f"HSET hash:{i % 40} field{i} {'h' * (i % 90)}",
        ]
        commands += [
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
        "DEBUG DIGEST",
    ]
    options: list[str | Path] = [
        "--port",
        "0",
        "--unixsocket",
        path,
        "--save",
        "",
        "--dir",
        session.folder,
        "--activedefrag",
        "no",
    ]
    if " v=6." not in session.run("redis-server", "--version"):  # since 7 it wants to be told
        options += ["--enable-debug-command", "yes"]
    with session.server("redis-server", *options, ready=lambda: accepts(path)):
        return session.run("redis-cli", "-s", path, text="\n".join(commands) + "\n")


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
    "redis": Program(("redis-server", "redis-cli"), "redis-", redis),
    "nginx": Program(("nginx",), "nginx", nginx),
}
