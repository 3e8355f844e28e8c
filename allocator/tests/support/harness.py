"""What the Python tests share: the library under test, running a program on it, and an exit status that shows skips.

CTest passes everything through the environment: FREESTONE_LIBRARY (absent: the C library's own malloc),
FREESTONE_PROBES (the folder of the small C and C++ programs), FREESTONE_CC (a C compiler).
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support import place

place.settle()
SKIPPED = 77
HANG_SECONDS = 2400.0  # what runs longer hangs: nothing needs a hundredth of it


def library(path: str) -> Path | None:
    """The file that a path of FREESTONE_LIBRARY names, by a path that LD_PRELOAD is not split in."""
    real = Path(path).resolve()
    return (Path(path) if re.search(r"[\s:]", str(real)) else real) if path else None


LIBRARY = library(os.environ.get("FREESTONE_LIBRARY", ""))
PROBES = Path(os.environ.get("FREESTONE_PROBES", "."))
COMPILER = os.environ.get("FREESTONE_CC", "cc")
IS_FREESTONE = LIBRARY is not None and LIBRARY.name.startswith("libfreestone")
IS_HARDENED = IS_FREESTONE and LIBRARY is not None and "hardened" in LIBRARY.name


@dataclass(frozen=True)
class Finished:
    """A program that has ended; `status` is negative for a signal, as in subprocess."""

    status: int
    out: str
    err: str


def environment(preload: Sequence[Path], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of ours, with `preload` set for the program to come."""
    result = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("FREESTONE_")}
    if preload:
        result["LD_PRELOAD"] = ":".join(str(path) for path in preload)
    result.update(extra or {})
    return result


def run(
    command: Sequence[str | Path],
    *,
    library: Path | None = LIBRARY,
    conf: str = "",
    extra: Mapping[str, str] | None = None,
    timeout: float = HANG_SECONDS,
    also_preload: Sequence[Path] = (),
) -> Finished:
    """Run a program on `library` (None: the C library's malloc), under these options; return how it ended."""
    preload = [*([library] if library else []), *also_preload]
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(preload, {**({"FREESTONE_CONF": conf} if conf else {}), **(extra or {})}),
        capture_output=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Finished(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def older_kernel() -> list[str | Path]:
    """What a command begins with to meet a kernel before 5.14: no populated pages, no guard regions, no collapse."""
    return [PROBES / "refuse_advice", "22", "23", "25", "102", "103", "--"]


def require_freestone(reason: str) -> None:
    """Skip the running test on any other allocator."""
    if not IS_FREESTONE:
        raise unittest.SkipTest(reason)


class FreestoneTest(unittest.TestCase):
    """Cases of what only libfreestone promises, each with a folder of its own."""

    def setUp(self) -> None:
        require_freestone("a promise of libfreestone")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


def main() -> None:
    """Run the calling module's tests; exit 77 when every one of them was skipped."""
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    # A class that is skipped as a whole counts no test as run.
    sys.exit(SKIPPED if result.skipped and len(result.skipped) >= result.testsRun else 0)
