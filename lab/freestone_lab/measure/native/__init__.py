"""The small C programs of the lab, compiled at first use: `launch` (runs and measures one child), `probe`, and the
libraries `timed` and `aged`."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError

_LIBRARY = ["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ldl"]
FLAGS = {
    "launch": ["-static", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"],
    "timed": _LIBRARY,
    "aged": _LIBRARY,
    "probe": ["-O0", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ldl"],
}


@cache
def tool(name: str) -> Path:
    """The path of the program `name`. An installation has it; elsewhere it is compiled if source or flags changed."""
    shipped = paths.installed()
    if shipped is not None and (shipped / name).exists():
        return shipped / name
    return compiled(name, [Path(__file__).parent / f"{name}.c"], FLAGS[name], os.environ.get("CC", "cc"))


def compiled(name: str, sources: Sequence[Path], flags: Sequence[str], compiler: str) -> Path:
    """The program of these sources and headers, compiled if they or the flags changed. UserError if that fails."""
    key = hashlib.sha256(b"".join(source.read_bytes() for source in sources) + repr([compiler, *flags]).encode())
    target = paths.cache_dir() / f"{name}-{key.hexdigest()[:16]}"
    if not target.exists():
        _compile(sources, flags, compiler, target)
    return target


def install(folder: Path) -> None:
    """Puts `launch` into the folder of an installation, so that its users need no compiler; CMake installs `probe`."""
    source = Path(__file__).parent / "launch.c"
    _compile([source], FLAGS["launch"], os.environ.get("CC", "cc"), folder / "launch")


def _compile(sources: Sequence[Path], flags: Sequence[str], compiler: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    units = [str(source) for source in sources if not source.suffix.startswith(".h")]
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        partial = Path(folder) / target.name
        command = [compiler, *units, "-o", str(partial), *flags]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise UserError(f"the compiler '{compiler}' does not start ({error.strerror}); install gcc, g++") from error
        if done.returncode != 0:
            reason = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
            raise UserError(f"{target.name} does not compile with '{compiler}': {reason}")
        partial.replace(target)
