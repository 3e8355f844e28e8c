"""A process that runs is looked at by its number, without having been prepared, and goes on as if nothing happened."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freestone_lab.core import elf, paths
from freestone_lab.core.errors import UserError
from freestone_lab.heap import attach, profiling, snapshot, tracing
from freestone_lab.heap.visiting import Answer, Errand

# Three threads: one allocates, one computes with vector registers and compares, one sleeps in the kernel.
SOURCE = r"""
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>
static std::atomic<bool> stop;
static void* kept[5000];
__attribute__((noinline)) void* take(size_t bytes) {
  void* block = malloc(bytes);
  asm volatile("" : "+r"(block));
  return block;
}
static void churn() {
  for (unsigned seed = 1; !stop;) {
    seed = seed * 1664525 + 1013904223;
    void*& slot = kept[(seed >> 8) % 5000];
    free(slot);
    slot = take(16 + (seed >> 4) % 3000);
    if (seed % 256 == 0) usleep(300);  // the processor is shared with other tests
  }
}
static double series() {
  double sum = 0;
  for (int i = 1; i < 20000; ++i) sum += std::sqrt(i * 0.5) / i;
  return sum;
}
int main() {
  std::thread allocating(churn);
  std::thread computing([] {
    const double first = series();
    for (; !stop; usleep(300))
      if (series() != first) _exit(3);
  });
  char line[8];
  if (write(2, "up\n", 3) != 3) return 4;
  const long got = read(0, line, sizeof line);  // interrupted by every look: it must start again
  if (got < 0) return 5;
  stop = true;
  allocating.join();
  computing.join();
  return 0;
}
"""
LOOKS = 15


@pytest.fixture(scope="module")
def program(compile_to_preload: Callable[[str, str], Path]) -> Path:
    return compile_to_preload("churning.cc", SOURCE)


@pytest.fixture(params=["libfreestone.so", "libfreestone-hardened.so"])
def running(program: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / request.param)}
    command = ["/usr/bin/served"]
    child = subprocess.Popen(command, executable=program, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None and child.stderr.readline() == b"up\n"
    yield child
    child.kill()
    child.wait()


# The commands on top are the same for both builds.
stock = pytest.mark.parametrize("running", ["libfreestone.so"], indirect=True)


def ended_well(child: subprocess.Popen[bytes]) -> bool:
    assert child.stdin is not None
    child.stdin.close()
    return child.wait() == 0


def test_many_looks_leave_registers_and_interrupted_calls_as_they_were(running: subprocess.Popen[bytes]) -> None:
    process = attach.Process(running.pid)
    for _ in range(LOOKS):
        for tid in process.threads():
            on_thread(process, tid, Errand.is_profiling)
    assert ended_well(running)


def on_thread(process: attach.Process, tid: int, errand: Errand) -> Answer:
    """An errand on this thread and no other, as often as it takes."""
    while (answer := process._visit_on(tid, errand, 0)) is None or answer.result == errno.EBUSY:
        pass
    return answer


def test_a_profile_by_number_names_what_allocates(running: subprocess.Popen[bytes]) -> None:
    process = attach.Process(running.pid)
    functions: set[str] = set()
    with attach.sampled(process, 4096):
        while "take" not in functions:
            time.sleep(0.05)
            profile = profiling.read_now(process)
            functions = {frame.function.split("(")[0] for stack, _ in profile.samples for frame in stack}
    assert not process.is_profiling()
    assert ended_well(running)


def test_a_look_that_meets_another_tries_again(
    running: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [PermissionError(errno.EPERM, "a debugger had the thread, and has let go of it")] * 20
    real = tracing.ptrace

    def ptrace(request: int, *arguments: int) -> int:
        if request == tracing.PTRACE_SEIZE and refusals:
            raise refusals.pop()
        return real(request, *arguments)

    monkeypatch.setattr(tracing, "ptrace", ptrace)
    assert not attach.Process(running.pid).is_profiling()
    assert not refusals
    assert ended_well(running)


def test_lookers_at_one_process_take_turns(running: subprocess.Popen[bytes]) -> None:
    script = (
        "import sys; from freestone_lab.heap import attach\n"
        "process = attach.Process(int(sys.argv[1]))\n"
        "for _ in range(20): process.is_profiling()"
    )
    lookers = [subprocess.Popen([sys.executable, "-c", script, str(running.pid)]) for _ in range(4)]
    assert [looker.wait() for looker in lookers] == [0] * 4
    assert ended_well(running)


def test_a_process_without_libfreestone_is_refused_with_the_way_out() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    try:
        with pytest.raises(UserError, match="does not run under libfreestone; start it with"):
            attach.Process(child.pid)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("tool", [("valgrind", "--tool=none"), ("ld.so",)], ids=["valgrind", "linker"])
def test_a_look_leaves_a_program_alone_that_the_processor_does_not_run(tool: tuple[str, ...], program: Path) -> None:
    """Under valgrind a call would end it. Started through the dynamic linker, a program is like any other."""
    linker = elf.interpreter(program)
    assert linker is not None
    if shutil.which(tool[0]) is None and tool != ("ld.so",):
        pytest.skip(f"there is no {tool[0]}")
    words = [linker] if tool == ("ld.so",) else tool
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / "libfreestone.so")}
    child = subprocess.Popen([*words, program], env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stderr is not None
    while child.stderr.readline() != b"up\n":
        assert child.poll() is None
    try:
        if tool == ("ld.so",):
            assert not attach.Process(child.pid).is_profiling()
        else:
            with pytest.raises(UserError, match="runs under an emulator or a tool such as valgrind"):
                attach.Process(child.pid)
        assert ended_well(child)
    finally:
        child.kill()
        child.wait()


def test_a_number_that_is_no_process_is_refused() -> None:
    with pytest.raises(UserError, match="no process has the number 4194304"):
        attach.Process(4194304)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_last_look_before_the_program(number: signal.Signals, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from freestone_lab.heap import watch\n"
        "name = lambda pid: Path(f'/proc/{pid}/comm').read_text().strip()\n"
        "look = lambda pids: Path(sys.argv[1]).write_text(' '.join(map(name, pids)))\n"
        "sys.exit(-watch.run(['sh', '-c', 'echo up; exec sleep 1000'], Path('/bin/sh'), {}, look).returncode)"
    )
    seen = tmp_path / "seen"
    child = subprocess.Popen([sys.executable, "-c", script, str(seen)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    child.send_signal(number)
    assert child.wait() == number
    assert seen.read_text() in ("sleep", "sh")


def freestone(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "freestone_lab.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", [["run"], ["profile", "-o"], ["leaks", "--json"], ["record", "-o"]])
def test_a_script_without_a_first_line_runs_and_keeps_its_status(
    command: list[str], program: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$0 $1"; exit 7\n')
    script.chmod(0o755)
    output = [str(tmp_path / "output")] if command[1:] else []
    started = freestone(*command, *output, "--", str(script), "a word")
    said, errors = started.communicate()
    assert (started.returncode, said) == (7, f"{script} a word\n"), errors


@stock
def test_a_page_that_a_killed_process_left_behind_hides_no_process(running: subprocess.Popen[bytes]) -> None:
    page = snapshot.page_path(running.pid)
    left = {"pid": running.pid, "program": "", "freestone": "", "build": "", "time_ms": 1}
    text = json.dumps({**left, "figures": {}, "system_calls": {}, "classes": [], "threads": []}).encode()
    page.write_bytes(snapshot.HEADER.pack(snapshot.MAGIC, 2, len(text), 1).ljust(snapshot.TEXT_AT, b"\0") + text)
    looking = freestone("stats", str(running.pid))
    out, err = looking.communicate(timeout=60)
    assert (looking.returncode, err) == (0, "") and f"process {running.pid}" in out


@stock
def test_profile_by_number_writes_the_page_and_the_process_goes_on(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    page = tmp_path / "heap.html"
    looking = freestone("profile", "--pid", str(running.pid), "--for", "1s", "-o", str(page))
    _, errors = looking.communicate()
    assert (looking.returncode, running.poll()) == (0, None), errors
    assert "churn" in page.read_text()
    assert f"served (process {running.pid})" in page.read_text(), "by the name that it was started by"
    assert not attach.Process(running.pid).is_profiling()
    assert ended_well(running)


@stock
def test_ctrl_c_ends_the_look_and_not_the_program(running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    page = tmp_path / "heap.html"
    looking = freestone("profile", "--pid", str(running.pid), "-o", str(page))
    process = attach.Process(running.pid)
    while not process.is_profiling():
        time.sleep(0.05)
    looking.send_signal(signal.SIGINT)
    assert looking.wait() == 0
    assert page.exists()
    assert ended_well(running)


@stock
def test_two_searches_for_leaks_by_number_find_no_block_that_is_held(running: subprocess.Popen[bytes]) -> None:
    for _ in range(2):
        looking = freestone("leaks", "--pid", str(running.pid), "--for", "1s")
        _, errors = looking.communicate()
        assert looking.returncode == 0, errors
        assert "nothing lost" in errors
    assert ended_well(running)


SERVER = r"""
#include <cstdlib>
#include <cstring>
#include <unistd.h>
static void* kept;
__attribute__((noinline)) void lose(size_t bytes) { memset(kept = malloc(bytes), 1, bytes); kept = nullptr; }
int main() {
  for (int i = 0; i < 1000; ++i) lose(5000);
  if (write(1, "up\n", 3) != 3) return 4;
  for (;;) pause();
}
"""


@pytest.fixture(scope="module")
def server(compile_to_preload: Callable[[str, str], Path]) -> Path:
    return compile_to_preload("losing.cc", SERVER)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None])
def test_a_server_that_ctrl_c_or_the_time_ends_has_its_profile_written(
    number: signal.Signals | None, server: Path, tmp_path: Path
) -> None:
    page = tmp_path / "heap.html"
    time_ = [] if number else ["--for", "1s"]
    watched = freestone("profile", "-o", str(page), "--sample-bytes", "1", *time_, "--", str(server))
    assert watched.stdout is not None and watched.stdout.readline() == "up\n"
    if number:
        watched.send_signal(number)
    assert watched.wait(600) == 128 + (number or signal.SIGTERM)
    assert "lose" in page.read_text()


@pytest.mark.parametrize("time_", [[], ["--for", "1s"]])
def test_a_server_that_ctrl_c_or_the_time_ends_has_its_leaks_reported(time_: list[str], server: Path) -> None:
    watched = freestone("leaks", *time_, "--", str(server))
    assert watched.stdout is not None and watched.stdout.readline() == "up\n"
    if not time_:
        watched.send_signal(signal.SIGINT)
    _, errors = watched.communicate(timeout=600)
    assert watched.returncode == 23
    assert "lose" in errors and "blocks lost" in errors


@stock
def test_all_numbers_that_pidof_prints_are_looked_at(
    running: subprocess.Popen[bytes], server: Path, tmp_path: Path
) -> None:
    page, gone = tmp_path / "heap.html", "4194304"
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / "libfreestone.so")}
    with subprocess.Popen([server, "second"], env=env, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        both = [str(running.pid), str(other.pid)]
        for command, status, said in (
            (["profile", "-o", str(page), "--for", "1s", "--pid", *both, gone], 0, f"no process has the number {gone}"),
            (["leaks", "--for", "1s", "--pid", *both], 0, "1 more processes lost nothing"),
            (["stats", *both], 0, ""),
            (["top", *both], 2, f"pick one of {running.pid}: served; {other.pid}: losing second"),
            (["top"], 2, "top: no process; expected the number of one that runs"),
            (["profile", "--pid"], 2, "--pid: no process; expected the number of one that runs"),
            (["leaks", "--pid", "--for", "1s"], 2, "--pid: no process; expected the number of one that runs"),
        ):
            looking = freestone(*command)
            output, errors = looking.communicate()
            assert (looking.returncode, said in errors) == (status, True), (command, errors)
            assert command[0] != "stats" or all(f"process {pid} " in output for pid in both)
        assert all(f"(process {pid})" in page.read_text() for pid in both)
        other.kill()
    assert ended_well(running)


@pytest.mark.parametrize(("user", "said"), [(0, "CAP_SYS_PTRACE"), (1000, "try it as root")])
def test_root_is_not_told_to_try_it_as_root(user: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, **_: str) -> str:
        raise PermissionError

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(UserError, match=said) as caught:
        attach.Process(1)
    assert ("as root" in str(caught.value)) == (user != 0)


def test_an_output_that_cannot_be_written_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "file").write_text("")
    refused = freestone("profile", "-o", str(tmp_path / "file" / "heap.html"), "--", "touch", str(ran))
    _, errors = refused.communicate()
    assert refused.returncode == 2 and not ran.exists()
    assert "--output" in errors and "cannot be written" in errors and "Traceback" not in errors


def test_processes_that_allocate_nothing_take_no_line(server: Path) -> None:
    shells = "sh -c 'sh -c true'; sh -c true; sh -c true"
    watched = freestone("leaks", "--", "sh", "-c", shells)
    _, errors = watched.communicate()
    assert len(errors.splitlines()) <= 3, errors
