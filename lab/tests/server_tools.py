"""What tests that start servers share."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from freestone_lab.core import paths

NGINX = """
daemon off; worker_processes 2; error_log stderr; pid {folder}/nginx.pid; {more}
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "all is well"; }} }}
}}
"""


@contextmanager
def runs(
    *command: str | Path, executable: Path | None = None, library: str = "libfreestone.so", **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A program under the library that has written `up` to its standard error."""
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / library), **more}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, executable=executable, env=env, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
    ) as child:
        try:
            assert child.stderr is not None
            while child.stderr.readline() != b"up\n":
                assert child.poll() is None
            yield child
        finally:
            child.kill()


def need(*programs: str) -> None:
    """Skips the test where one of them is not installed."""
    absent = [p for p in programs if shutil.which(p) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def write_nginx(folder: Path, port: int, more: str = "") -> None:
    """Writes folder/nginx.conf, all of whose files lie in the folder. `more`: further lines at its top."""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, more=more))
