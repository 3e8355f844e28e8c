"""Where tests run: the same signals, limits, files and variables, however bad the place is that they are started in."""

import json
import os
import subprocess
import sys
from typing import Any

from support import place

from freestone_lab.core import paths

ROOT = paths.root()

REPORT = """
import json, os, resource, signal, sys
from support import place
if "settled" in sys.argv:
    place.settle()
ignored = [int(n) for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN]
opened = [number for number in range(3) if os.path.exists(f"/proc/self/fd/{number}")]
print(json.dumps({
    "ignored": ignored, "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "umask": os.umask(0), "opened": opened, "home": place.usable(os.environ["HOME"]),
    "limits": [resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in place.WORST_LIMITS],
    "variables": {n: v for n, v in os.environ.items() if place.VARIABLES.match(n)},
    "scratch": place.PLAIN.fullmatch(os.environ.get("TMPDIR", "/tmp")) is not None,
}))
"""


def seen(*before: str, settled: bool) -> dict[str, Any]:
    """What a Python finds, started by way of a command."""
    env = {"PYTHONPATH": str(ROOT / "allocator/tests"), "PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    words = [*before, sys.executable, "-c", REPORT, *(["settled"] if settled else [])]
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_worst_place_is_bad_in_every_way_and_a_settled_process_sees_nothing_of_it() -> None:
    worst = (sys.executable, place.__file__)
    here = seen(settled=True)
    assert seen(*worst, settled=True) == here
    assert [name for name, found in seen(*worst, settled=False).items() if found == here[name]] == []
