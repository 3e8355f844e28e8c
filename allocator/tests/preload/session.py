"""One program under one allocator: a scratch folder, commands run in it, and the witness of who served malloc."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    source: Path = Path("/nonexistent")
    starter: tuple[str | Path, ...] = ()
    errors: str = ""
    witness: Path = field(init=False)

    def __post_init__(self) -> None:
        self.witness = self.folder / "witness.txt"
        self.witness.touch()
        self.witness.chmod(0o666)  # servers give up root
        self.folder.chmod(0o711)

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

    def words(self, command: Sequence[str | Path]) -> list[str]:
        """The command with the path of its program, behind the starter."""
        return [str(word) for word in (*self.starter, find(str(command[0])) or command[0], *command[1:])]

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def attempt(
        self,
        *command: str | Path,
        text: str | bytes = b"",
        extra: Mapping[str, str] | None = None,
        under: str | Path = ".",
    ) -> tuple[int, str]:
        """Run a command in the folder, or one `under` it; returns its status and its standard output."""
        done = subprocess.run(
            self.words(command),
            cwd=self.folder / under,
            env=self.environment(extra),
            input=text.encode() if isinstance(text, str) else text,
            capture_output=True,
            timeout=harness.HANG_SECONDS,
            check=False,
        )
        self.errors += done.stderr.decode(errors="replace")
        return done.returncode, done.stdout.decode(errors="surrogateescape")

    def run(self, *command: str | Path, text: str | bytes = b"", extra: Mapping[str, str] | None = None) -> str:
        """As `attempt`, where any status but 0 is an error."""
        status, output = self.attempt(*command, text=text, extra=extra)
        if status != 0:
            raise RuntimeError(f"{find(str(command[0])) or command[0]} ended with {status}: {self.errors[-2000:]}")
        return output

    @contextlib.contextmanager
    def server(self, *command: str | Path, ready: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
        """A server that runs while the block runs; `ready` is asked until it says yes."""
        log = self.folder / "server.log"

        def bad_end() -> RuntimeError:
            said = log.read_text(errors="replace")[-2000:]
            return RuntimeError(f"{command[0]} ended with {process.returncode}: {said}")

        with log.open("wb") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            process = subprocess.Popen(self.words(command), cwd=self.folder, env=self.environment(), **streams)
            try:
                while not ready():
                    if process.poll() is not None:
                        raise bad_end()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.05)
                yield process
            finally:
                process.terminate()
                ended = process.wait()
                self.errors += log.read_text(errors="replace")
                if ended not in (0, -15):
                    raise bad_end()

    def said(self, parts: int) -> list[list[str]]:
        """The lines of the witness that have so many parts."""
        lines = (line.split("\t") for line in self.witness.read_text().splitlines())
        return [line for line in lines if len(line) == parts]

    def testimony(self) -> list[tuple[str, str]]:
        """Of each process: the name of its program, and the object that served its malloc."""
        return [
            (Path(program).name, os.path.realpath(program if owner == "/proc/self/exe" else owner))
            for program, owner in self.said(2)
        ]

    def linked(self, served: str) -> dict[str, int]:
        """Each malloc that a program of that name is linked with -> the most bytes that it had given out at an exit."""
        result: dict[str, int] = {}
        for program, owner, number in self.said(3):
            if Path(program).name.startswith(served):
                result[owner] = max(result.get(owner, 0), int(number))
        return result

    def served(self) -> dict[str, set[str]]:
        """Name of each program that ran -> the objects that served its malloc."""
        result: dict[str, set[str]] = {}
        for program, owner in self.testimony():
            result.setdefault(program, set()).add(owner)
        return result
