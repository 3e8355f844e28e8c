"""The small C programs of the lab, compiled at first use: `launch` (runs and measures one child), `probe`, and the
library `timed`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError

FLAGS = {
    "launch": ["-static", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"],
    "timed": ["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"],
    "probe": ["-O0", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ldl"],
}


@cache
def tool(name: str) -> Path:
    """The path of the program `name`. An installation has it; elsewhere it is compiled if source or flags changed."""
    shipped = paths.installed()
    if shipped is not None and (shipped / name).exists():
        return shipped / name
    source = Path(__file__).parent / f"{name}.c"
    key = hashlib.sha256(source.read_bytes() + repr(FLAGS[name]).encode()).hexdigest()[:16]
    target = paths.cache_dir() / f"{name}-{key}"
    if not target.exists():
        _compile(source, target)
    return target


def install(folder: Path) -> None:
    """Puts `launch` into the folder of an installation, so that its users need no compiler; CMake installs `probe`."""
    _compile(Path(__file__).parent / "launch.c", folder / "launch")


def _compile(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        partial = Path(folder) / target.name
        try:
            done = subprocess.run(
                [compiler, str(source), "-o", str(partial), *FLAGS[source.stem]],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise UserError(f"the C compiler '{compiler}' does not start ({error.strerror}); install gcc") from error
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise UserError(f"{source.name} does not compile with '{compiler}': {lines[-1] if lines else 'no message'}")
        partial.replace(target)
