"""What the hardened library's check of memcpy costs: instructions a call, counted by callgrind, beside libc's own.

Each count is the difference of two runs with different numbers of calls, so it includes neither the start nor the end
of a process.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
import tempfile
from pathlib import Path

from freestone_lab.core.errors import UserError
from freestone_lab.core.result import Experiment, FigureSpec, Peer, Result, Sample
from freestone_lab.measure import counts, fingerprint
from freestone_lab.peers import discover

WORKLOAD = "memory-calls"
LIBC, CHECKED = "glibc", "freestone-hardened"
PLACES = ("heap", "static")
SIZES = (8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20)
_CALLS = 32
_PROGRAM = """
#include <stdlib.h>
#include <string.h>
static char from_static[1 << 20], to_static[1 << 20];
void* (*volatile copy)(void*, const void*, size_t) = memcpy;
int main(int count, char** arguments) {
  size_t bytes = strtoul(arguments[1], 0, 10);
  int in_heap = arguments[2][0] == 'h';
  char* from = in_heap ? calloc(1, bytes) : from_static;
  char* to = in_heap ? calloc(1, bytes) : to_static;
  for (long left = atol(arguments[3]); left > 0; --left) copy(to, from, bytes);
  return count != 4;
}
"""


def run() -> Result:
    """One experiment for each size and place, with one sample of each library."""
    peers = [discover.find(LIBC), discover.find(CHECKED)]
    result = Result(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=["freestone", *sys.argv[1:]],
        seed=0,
        fingerprint=fingerprint.collect(peers, []),
        peers=peers,
    )
    specs = {"instructions": FigureSpec("count", "lower", "instructions a call (callgrind)")}
    with tempfile.TemporaryDirectory() as folder:
        program = _build(Path(folder))
        for place in PLACES:
            for size in SIZES:
                params = {"bytes": size, "place": place}
                experiment = Experiment(f"{WORKLOAD}/{place}={size}", WORKLOAD, params, specs)
                for peer in peers:
                    figures = {"instructions": _per_call(program, peer, size, place, Path(folder))}
                    experiment.samples.append(Sample(peer.name, 0, "ok", figures=figures))
                result.experiments.append(experiment)
    return result


def _build(folder: Path) -> Path:
    source, program = folder / "copy.c", folder / "copy"
    source.write_text(_PROGRAM)
    subprocess.run(["cc", "-O1", "-w", str(source), "-o", str(program)], check=True)
    return program


def _per_call(program: Path, peer: Peer, size: int, place: str, scratch: Path) -> float:
    def total(calls: int) -> int:
        argv = [str(program), str(size), place, str(calls)]
        found = counts.instructions(argv, discover.preload_environment(peer), scratch, None, scratch)
        if found is None:
            raise UserError(f"{peer.name}: no instructions counted; expected valgrind to run {program.name}")
        return found

    return (total(2 * _CALLS) - total(_CALLS)) / _CALLS


def rows(result: Result) -> list[tuple[str, ...]]:
    """Per size libc's instructions a call, and how many the check adds in the heap and elsewhere."""
    found = {
        (e.params["place"], e.params["bytes"], s.peer): s.figures["instructions"]
        for e in result.experiments
        for s in e.samples
    }

    def added(place: str, size: int) -> str:
        return f"{found[place, size, CHECKED] - found[place, size, LIBC]:+,.0f}"

    return [
        (f"{size:,}", f"{found['heap', size, LIBC]:,.0f}", *(added(place, size) for place in PLACES)) for size in SIZES
    ]
