"""What an allocator could win at most: sampled from programs whose share of malloc is known."""

import os
import subprocess
from pathlib import Path

import pytest
from peers_tools import compiled

from freestone_lab.measure import share

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char** argv) {
  const double until = now() + 0.2;
  if (argc > 1) {
    char* held = malloc(20 << 20);
    memset(held, 1, 20 << 20);
    while (now() < until)
      for (int i = 0; i < 1000; i++) { void* volatile block[9]; for (int k = 0; k < 9; k++) block[k] = malloc(3000);
                                       for (int k = 0; k < 9; k++) free(block[k]); }
  }
  while (now() < until) for (volatile int i = 0; i < 100000; i++) {}
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(built: Path) -> Path:
    return compiled(built / "shares", SOURCE)


def sampled(program: Path, folder: Path, *words: str) -> share.Share:
    said = folder / "said"
    env = {**os.environ, "LD_PRELOAD": str(share.library()), share.VARIABLE: str(said)}
    subprocess.run([str(program), *words], env=env, check=True)
    found = share.read(said, 1.0)
    assert found is not None
    return found


def test_a_program_that_only_allocates_could_win_most_of_its_time(program: Path, tmp_path: Path) -> None:
    found = sampled(program, tmp_path, "much")
    assert found.bound > 0.2 and found.malloc_s < found.cpu_s
    assert 20 << 10 < found.heap_kib < 24 << 10 < found.rss_kib + 4096
    assert "are malloc's" in found.words() and "to win" in found.words()


def test_a_program_that_never_allocates_could_win_nothing(program: Path, tmp_path: Path) -> None:
    found = sampled(program, tmp_path)
    assert found.bound < 0.05 and found.malloc_s < 0.001 and found.heap_kib < 512


def test_a_process_that_says_nothing_is_no_share(tmp_path: Path) -> None:
    assert share.read(tmp_path / "absent", 1.0) is None


@pytest.mark.parametrize(("wall_s", "nothing"), [(0.1, False), (2.0, True)])
def test_only_a_run_long_enough_to_tell_is_taken_to_rest(wall_s: float, nothing: bool) -> None:
    """Beside load, a millisecond's work may take a tenth of a second: waiting for a processor is no rest."""
    assert share.Share(0.0001, 0.0001, cpu_s=0.001, heap_kib=1, rss_kib=1, wall_s=wall_s).nothing_to_win is nothing
