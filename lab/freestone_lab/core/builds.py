"""Native parts of the release build: made when missing, and never used while somebody builds.

Every build of a preset holds the lock beside its folder: `freestone build`, `freestone test`, and what is built here.
"""

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError


@contextlib.contextmanager
def lock(preset: str = "release", *, shared: bool = False) -> Iterator[None]:
    """Held while a preset is built; shared, it only waits for who builds."""
    path = paths.root() / "build" / f"{preset}.lock"
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # where nothing may be written, nobody builds
            path.parent.mkdir(parents=True, exist_ok=True)
            file = held.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def built(name: str) -> Path:
    """A built file, once nobody builds; built first when it is missing. UserError if that fails."""
    path = paths.build_dir() / name
    if paths.installed() is None:
        with lock(shared=True):
            present = path.exists()
        if not present:
            subprocess.run([str(paths.root() / "freestone"), "build", name], stdout=subprocess.DEVNULL)
    if not path.exists():
        raise UserError(f"{path} is missing: './freestone build {name}' makes it")
    return path
