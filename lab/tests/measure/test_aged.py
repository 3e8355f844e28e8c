"""A program that starts in an aged heap: the holes are there, by the seed, in the program itself and nowhere else."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from command_tools import freestone
from peers_tools import compiled

from freestone_lab.measure import native

SOURCE = r"""
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  if (argc == 1) return 0;
  const struct mallinfo2 heap = mallinfo2();
  printf("%zu %zu\n", heap.uordblks, heap.fordblks);
  fflush(stdout);
  return argv[1][0] != 0 ? system(argv[1]) : 0;
}
"""
MIB = 1 << 20


@pytest.fixture(scope="module")
def program(built: Path) -> Path:
    return compiled(built / "heap_state", SOURCE)


def states(program: Path, seed: str | None) -> list[list[int]]:
    """Live and free bytes of glibc's heap at the start, of the program and of its child."""
    env = {**os.environ, "LD_PRELOAD": str(native.tool("aged"))}
    env |= {} if seed is None else {"FREESTONE_AGED": seed}
    done = subprocess.run([str(program), f"{program} ''"], env=env, capture_output=True, text=True, check=True)
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def test_the_programs_heap_has_holes_and_its_childs_has_none(program: Path) -> None:
    (live, free), child = states(program, "1")
    assert 4 * MIB <= live < 6 * MIB
    assert free > 8 * MIB
    assert sum(child) < MIB


def test_a_seed_gives_one_heap(program: Path) -> None:
    first, again, other = (states(program, seed)[0] for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


def test_without_a_seed_nothing_is_aged(program: Path) -> None:
    assert sum(states(program, None)[0]) < MIB


def test_compare_ages_every_allocators_heap(program: Path, tmp_path: Path) -> None:
    words = ["compare", "--rounds", "1", "--only", "freestone", "--force", "--json", "aged.json"]
    grown = {}
    for name, more in (("new", []), ("aged", ["--aged", "7"])):
        done = freestone(tmp_path, *words, *more, "--", str(program))
        assert done.returncode == 0, done.stderr
        result = json.loads((tmp_path / "aged.json").read_text())
        assert result["fingerprint"].get("aged") == (7 if more else None)
        samples = [s for e in result["experiments"] for s in e["samples"] if s["round"] == 1]
        grown[name] = {s["peer"]: s["figures"]["rss"] for s in samples}
    for peer in ("glibc", "freestone"):
        assert grown["aged"][peer] > grown["new"][peer] + 4 * 1024
