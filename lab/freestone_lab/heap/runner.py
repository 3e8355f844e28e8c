"""Runs a program under libfreestone, once it is proven that the library will serve it."""

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from freestone_lab.core import builds, elf
from freestone_lab.core.errors import UserError
from freestone_lab.host import target
from freestone_lab.measure import proof

CONF = "FREESTONE_CONF"


@dataclass(frozen=True)
class Prepared:
    """What to hand to execve."""

    program: Path
    argv: list[str]
    env: dict[str, str]


def library(hardened: bool) -> Path:
    """The library, built first if it is missing. UserError if that fails."""
    return builds.built("libfreestone-hardened.so" if hardened else "libfreestone.so")


def load_order(image: Path, preload: Path, env: Mapping[str, str]) -> list[str]:
    """The libraries that the dynamic linker would load for `image`, in its search order. The program does not start."""
    command = [str(elf.interpreter(image)), "--preload", str(preload), "--list", str(image)]
    clean = {k: v for k, v in env.items() if k != "LD_PRELOAD"}
    done = subprocess.run(command, env=clean, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"the dynamic linker cannot load '{image}': {lines[-1] if lines else 'no message'}")
    return re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", done.stdout, re.MULTILINE)


def verify(found: target.Target, lib: Path, env: Mapping[str, str]) -> None:
    """Raises UserError, one line, unless `lib` would serve malloc in that program."""
    probe = proof.probe_library(str(lib), env)
    if probe.failure:
        raise UserError(f"{lib}: {probe.failure}")
    if proof.defines(str(found.image.resolve()), "malloc"):
        raise UserError(f"'{found.image}' has a malloc of its own, which no preloaded library replaces")
    order = [os.path.realpath(p) for p in load_order(found.image, lib, env)]
    providers = [p for p in order if proof.defines(p, "malloc")]
    if not providers or providers[0] != os.path.realpath(lib):
        first = providers[0] if providers else "nothing"
        raise UserError(f"'{found.image}' would be served by {first}, not by {lib}")


def prepare(command: Sequence[str], *, stats: bool, hardened: bool) -> Prepared:
    """Checks everything that can be checked before the program starts."""
    found = target.resolve(command)
    lib = library(hardened)
    env = {k: v for k, v in os.environ.items() if k != "FREESTONE_ROOT"}
    verify(found, lib, env)
    others = [p for p in env.get("LD_PRELOAD", "").split(":") if p]
    env["LD_PRELOAD"] = ":".join([str(lib), *others])
    if stats:
        env[CONF] = ",".join(x for x in (env.get(CONF, ""), "stats_print:true") if x)
    if found.shell:
        return Prepared(found.shell, [str(found.shell), str(found.path), *command[1:]], env)
    return Prepared(found.path, list(command), env)


def visible_to_python(env: Mapping[str, str]) -> dict[str, str]:
    """The environment that makes a Python program take small objects from malloc, where a profile sees them."""
    return {"PYTHONMALLOC": "malloc", **env}


def execute(prepared: Prepared) -> None:
    """Becomes the program. The process is the same, so exit status, signals and terminal are the program's own."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(prepared.program, prepared.argv, prepared.env)
    except OSError as error:
        raise UserError(f"'{prepared.program}' does not start: {error.strerror}") from error
