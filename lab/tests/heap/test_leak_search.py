"""`freestone leaks` names what a program lost, by function and line, and says so by its exit status."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_tools import CLI

from freestone_lab.core.errors import UserError
from freestone_lab.heap import leak_search

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char* volatile kept;
__attribute__((noinline)) void forget(size_t size) {
  char* block = malloc(size); /* FORGET */
  memset(block, 0, size);
  __asm__ volatile("" : : "r"(block) : "memory");
}
__attribute__((noinline)) void wipe(void) {
  volatile char room[16384];
  for (size_t i = 0; i < sizeof room; ++i) room[i] = 0;
}
int main(int count, char** words) {
  kept = malloc(1000);
  if (count > 1 && strcmp(words[1], "lose") == 0) {
    for (volatile int i = 0; i < 5; i++) forget(4321);
  }
  if (count > 1 && strcmp(words[1], "much") == 0) {
    for (volatile int i = 0; i < 3000; i++) forget(1000);
  }
  wipe();
  if (count > 1 && strcmp(words[1], "leave") == 0) _exit(4);
  if (count > 1 && strcmp(words[1], "crash") == 0) abort();
  puts("done");
  return 3;
}
"""


@pytest.fixture(scope="module")
def program(compile_to_preload: Callable[[str, str], Path]) -> Path:
    return compile_to_preload("loser.c", SOURCE)


def freestone(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *words], capture_output=True, text=True, timeout=1200)


def test_lost_blocks_are_named_by_function_and_line(program: Path) -> None:
    done = freestone("leaks", "--", str(program), "lose")
    assert (done.returncode, done.stdout) == (23, "done\n"), done.stderr
    assert "21,605 bytes in 5 blocks lost, from 1 places" in done.stderr
    line = 1 + next(i for i, text in enumerate(SOURCE.splitlines()) if "FORGET" in text)
    assert f"loser.c:{line})" in done.stderr
    assert "    forget (" in done.stderr
    assert "    main (" in done.stderr


def test_the_exit_status_is_the_programs_when_nothing_is_lost(program: Path) -> None:
    done = freestone("leaks", "--", str(program))
    assert done.returncode == 3, done.stderr
    assert "nothing lost: every live block is reachable" in done.stderr


def test_error_zero_keeps_the_programs_status(program: Path) -> None:
    done = freestone("leaks", "--error", "0", "--", str(program), "lose")
    assert done.returncode == 3
    assert "5 blocks lost" in done.stderr


def test_sampled_mode_estimates(program: Path) -> None:
    found = leak_search.run([str(program), "much"], exact=False).processes[0]
    assert not found.exact
    assert 1_000_000 < found.lost_bytes < 6_000_000  # 3,000,000 by about 46 samples
    few = leak_search.run([str(program)], exact=False).processes[0]
    assert "mean 65536 bytes between samples" in few.reason


@pytest.mark.parametrize("command", ["profile", "leaks"])
@pytest.mark.parametrize(
    ("word", "status", "said"),
    [("leave", 4, "it left without running its exit handlers"), ("crash", 134, "it died of SIGABRT before its exit")],
)
def test_without_a_report_the_status_stays(program: Path, command: str, word: str, status: int, said: str) -> None:
    done = freestone(command, "--", str(program), word)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done.stderr
    assert f"'{program}' left no " in done.stderr and said in done.stderr


def test_a_file_that_is_no_report_is_refused() -> None:
    with pytest.raises(UserError, match="not JSON"):
        leak_search.read("leaks!")
    with pytest.raises(UserError, match="expected freestone-leaks/1"):
        leak_search.read('{"schema": "other"}')
