"""One program under one allocator: a scratch folder, commands run in it, and the witness that tells who served malloc."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support import harness

WITNESS = harness.PROBES / "witness.so"
SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"


def find(name: str) -> str | None:
    """An executable: system folders first, so that no wrapper script of a version manager is taken for it."""
    return shutil.which(name, path=SYSTEM_PATH) or shutil.which(name)


@dataclass
class Session:
    folder: Path
    library: Path | None
    errors: str = ""
    witness: Path = field(init=False)

    def __post_init__(self) -> None:
        self.witness = self.folder / "witness.txt"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        base = {
            "PATH": SYSTEM_PATH,
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": "1700000000",
            "FREESTONE_WITNESS": str(self.witness),
        }
        base.update(extra or {})
        return harness.environment([WITNESS, *([self.library] if self.library else [])], base)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, *command: str | Path, text: str | bytes = b"", extra: Mapping[str, str] | None = None) -> str:
        """Run a command in the folder; returns its standard output; any status but 0 is an error."""
        words = [str(word) for word in command]
        words[0] = find(words[0]) or words[0]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.environment(extra),
            input=text.encode() if isinstance(text, str) else text,
            capture_output=True,
            timeout=harness.HANG_SECONDS,
            check=False,
        )
        self.errors += done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {self.errors[-2000:]}")
        return done.stdout.decode(errors="surrogateescape")

    @contextlib.contextmanager
    def server(self, *command: str | Path, ready: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
        """A server that runs while the block runs; `ready` is asked until it says yes."""
        words = [str(word) for word in command]
        words[0] = find(words[0]) or words[0]
        log = self.folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                words, cwd=self.folder, env=self.environment(), stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
            try:
                while not ready():
                    if process.poll() is not None:
                        raise RuntimeError(
                            f"{words[0]} ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}"
                        )
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.05)
                yield process
            finally:
                process.terminate()
                if process.wait() not in (0, -15):
                    raise RuntimeError(
                        f"{words[0]} ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}"
                    )

    def served(self) -> dict[str, set[str]]:
        """Name of each program that ran -> the objects that served its malloc."""
        result: dict[str, set[str]] = {}
        lines = self.witness.read_text().splitlines() if self.witness.exists() else []
        for line in lines:
            program, _, owner = line.partition("\t")
            result.setdefault(Path(program).name, set()).add(os.path.realpath(owner))
        return result
