"""Whatever a program does when somebody looks at it, and whatever happens to who looks, the program notices nothing."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from freestone_lab.core import paths
from freestone_lab.core.errors import UserError
from freestone_lab.heap import attach, profiling, visiting
from freestone_lab.heap.attach import Process
from freestone_lab.heap.snapshot import page_path
from freestone_lab.heap.visiting import Errand

Compile = Callable[[str, str], Path]
LIBRARIES = ("libfreestone.so", "libfreestone-hardened.so")
both = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture(scope="module")
def unharmed(built: Path) -> Path:
    if not (paths.build_dir() / LIBRARIES[0]).exists():
        pytest.skip("libfreestone.so is not built")
    target = built / "unharmed"
    source = paths.root() / "lab/tests/programs/unharmed.c"
    subprocess.run(["cc", "-g", "-O1", "-fno-builtin", str(source), "-o", str(target), "-lpthread"], check=True)
    return target


@contextmanager
def watched(program: Path, *words: str, library: str = LIBRARIES[0]) -> Iterator[Process]:
    """The program, until its input ends. It then says what was done to it."""
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / library)}
    pipe = subprocess.PIPE
    child = subprocess.Popen([program, *words], env=env, stdin=pipe, stderr=pipe, text=True)
    assert child.stdin is not None and child.stderr is not None
    try:
        assert child.stderr.readline() == "up\n"
        yield Process(child.pid)
        child.stdin.close()
        said = child.stderr.read()
        assert (child.wait(), said) == (0, "")
    finally:
        child.kill()
        child.wait()


def visit_all_threads(process: Process) -> int:
    return sum(process._visit_on(tid, Errand.is_profiling, 0) is not None for tid in process.threads())


@both
@pytest.mark.parametrize("blocks", ["0", "1"], ids=["first thread open", "all signals blocked"])
def test_registers_data_signals_and_waits_are_as_before(unharmed: Path, library: str, blocks: str) -> None:
    with watched(unharmed, blocks, library=library) as process:
        visits = 0
        until = time.monotonic() + 1.5
        while visits < 100 or time.monotonic() < until:
            visits += visit_all_threads(process)
        with attach.sampled(process, 4096):
            time.sleep(0.2)
            assert process.profile()
            for _ in range(10):
                assert process.leaks()


def test_a_visit_comes_between_no_fault_and_its_handler(unharmed: Path) -> None:
    with watched(unharmed, "1") as process:
        named: list[int] = []
        while not named:
            named = [t for t in process.threads() if Path(f"/proc/{t}/comm").read_text() == "faults\n"]
        (tid,) = named
        visits = 0
        while visits < 150 and visiting.state_of(process.pid, tid) not in ("", "Z"):
            visits += process._visit_on(tid, Errand.is_profiling, 0) is not None


@contextmanager
def looker(process: Process, visit: Callable[[], object]) -> Iterator[int]:
    """A process that visits without a pause."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            while True:
                visit()
        os._exit(1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def kills(request: pytest.FixtureRequest) -> int:
    return 1000 if request.config.getoption("--programs") else 100


@both
def test_a_looker_may_be_killed_at_any_instant(
    unharmed: Path, library: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visiting, "THREAD_WAITS_MS", 5)
    draw = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    with watched(unharmed, "1", "killed", library=library) as process:
        for _ in range(kills(request)):
            with looker(process, lambda: visit_all_threads(process)):
                time.sleep(draw.random() * 0.02)
        assert not process.is_profiling()


@both
def test_a_looker_may_be_killed_in_the_midst_of_a_whole_look(
    unharmed: Path, library: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while all threads stand still. What was switched on ends by itself; the long form waits for that."""
    monkeypatch.setattr(visiting, "THREAD_WAITS_MS", 5)
    draw = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    with watched(unharmed, "1", "killed", library=library) as process:

        def look() -> None:
            with attach.sampled(process, 4096), attach.shown(process.pid):
                process.profile()
                process.leaks()

        for _ in range(kills(request) // 5):
            with looker(process, look):
                time.sleep(draw.random() * 0.1)
        while request.config.getoption("--programs") and (process.is_profiling() or page_path(process.pid).exists()):
            time.sleep(0.1)


def test_a_process_that_is_stopped_stays_so(compile_to_preload: Compile) -> None:
    with churning([str(compile_to_preload("churn.c", CHURNING))]) as child:
        process = Process(child.pid)
        os.kill(process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
        for _ in range(5):
            assert not process.is_profiling()
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
        assert child.poll() is None


# A process that has filtered its system calls: what malloc does not need ends it, or also what a service may do.
FILTERED = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static void *kept[1000];
__attribute__((noinline)) void fill(void) {
  for (int i = 0; i < 1000; ++i) free(kept[i]), kept[i] = malloc(3000 + i % 7);
}
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
int main(int count, char **words) {
  (void)words;
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(read), ALLOW(write), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(madvise),
      ALLOW(futex), ALLOW(exit_group), ALLOW(nanosleep), ALLOW(clock_nanosleep), ALLOW(rt_sigreturn),
      ALLOW(rt_sigprocmask), ALLOW(restart_syscall), ALLOW(getrandom), ALLOW(gettid), ALLOW(getpid),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, count > 1 ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS)};
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  fill();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 4;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 4;
  if (write(2, "up\n", 3) != 3) return 5;
  for (;;) {
    fill();
    const struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
}
"""


def test_a_process_whose_filter_would_end_it_is_left_alone(compile_to_preload: Compile) -> None:
    with churning([str(compile_to_preload("filtered.c", FILTERED))]) as child:
        process = Process(child.pid)
        for look in (process.profile, process.leaks, lambda: profiling.look([child.pid], 4096, 0.2)[0]):
            with pytest.raises(UserError, match="filters its system calls"):
                look()
        with pytest.raises(UserError, match="filters its system calls"), attach.shown(child.pid):
            pass
        assert not process.is_profiling() and child.poll() is None


def test_a_process_whose_filter_allows_it_is_looked_at(compile_to_preload: Compile) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may read a filter")
    with churning([str(compile_to_preload("filtered.c", FILTERED)), "service"]) as child:
        found_names(child.pid, "^fill$")
        assert Process(child.pid).leaks()
        with attach.shown(child.pid):
            assert page_path(child.pid).exists()
        assert child.poll() is None


# As a container's first process: it puts a filter into force that its children inherit.
CONTAINER = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int count, char **words) {
  struct sock_filter rules[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {1, rules};
  (void)count;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    return 4;
  if (fork() == 0) return execvp(words[1], words + 1);
  int status;
  wait(&status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}
"""


def test_a_container_filters_the_looker_as_it_filters_the_program(compile_to_preload: Compile, tmp_path: Path) -> None:
    """Nobody may read the filter there. What the looker may do, the program may."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-pf", "--mount-proc", "true"]).returncode:
        pytest.skip("no namespace of processes can be made here")
    program, first = compile_to_preload("churn.c", CHURNING), compile_to_preload("container.c", CONTAINER)
    script = (
        f"LD_PRELOAD={paths.build_dir() / LIBRARIES[0]} {program} 2>{tmp_path}/up & "
        f"while ! grep -q up {tmp_path}/up; do sleep 0.01; done; "
        f"{sys.executable} -m freestone_lab.cli profile --pid $! --for 0.2s -o {tmp_path}/page.html; "
        "status=$?; kill $!; exit $status"
    )
    command = ["unshare", "-pf", "--mount-proc", str(first), "sh", "-c", script]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert "fill" in (tmp_path / "page.html").read_text()


VFORKING = r"""
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  free(malloc(100));
  if (write(2, "up\n", 3) != 3) return 4;
  char byte;
  if (vfork() == 0) _exit(read(0, &byte, 1) < 0);  // until then the parent's only thread cannot be stopped
  return 0;
}
"""


def test_a_thread_that_cannot_be_stopped_is_let_go(
    compile_to_preload: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(compile_to_preload("vforking.c", VFORKING)) as process:
        while visiting.state_of(process.pid, process.pid) != "D":
            time.sleep(0.001)
        monkeypatch.setattr(attach, "PATIENCE_S", 0.3)
        with pytest.raises(UserError, match="no thread can answer"):
            process.is_profiling()
        assert process._visit_on(process.pid, Errand.is_profiling, 0) is None, "waits for a second and leaves it alone"


def test_a_look_counts_only_its_own_time(compile_to_preload: Compile) -> None:
    source = r"""
    #include <stdlib.h>
    #include <unistd.h>
    static void *kept[4000]; static int used;
    __attribute__((noinline)) void first(void) { for (int i = 0; i < 1000; ++i) kept[used++] = malloc(3000); }
    __attribute__((noinline)) void second(void) { for (int i = 0; i < 1000; ++i) kept[used++] = malloc(3001); }
    int main(void) {
      if (write(2, "up\n", 3) != 3) return 4;
      for (char c; read(0, &c, 1) == 1;) { if (c == '1') first(); else second(); if (write(1, "", 1) != 1) return 5; }
      return 0;
    }"""
    program = compile_to_preload("phases.c", source)
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / LIBRARIES[0])}
    pipe = subprocess.PIPE
    with subprocess.Popen([program], env=env, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as child:
        assert child.stdin and child.stdout and child.stderr and child.stderr.readline() == b"up\n"
        process = Process(child.pid)

        def look(phase: bytes) -> str:
            assert child.stdin and child.stdout
            with attach.sampled(process, 64 * 1024):
                child.stdin.write(phase)
                assert child.stdout.read(1) == b"\0"
                found = profiling.read_now(process)
            names = {frame.function.split("(")[0] for stack, _ in found.samples for frame in stack}
            said = profiling.summary(found)
            bounds = re.search(r"about (\d+) samples.*?: ([\d.]+) MiB to ([\d.]+) MiB, (\d+) of what is live", said)
            assert bounds is not None, said
            assert 10 <= int(bounds[1]) <= 120 and float(bounds[2]) < 4.5 and float(bounds[3]) > 1.8, said
            return " ".join(names & {"first", "second"})

        assert look(b"1") == "first"
        assert look(b"2") == "second"
        assert look(b"1") == "first"
        child.stdin.close()
        assert child.wait() == 0


CHURNING = r"""
#include <stdlib.h>
#include <unistd.h>
static void *kept[1000];
__attribute__((noinline)) void fill(void) {
  for (int i = 0; i < 1000; ++i) free(kept[i]), kept[i] = malloc(3000 + i % 7);
}
int main(void) {
  fill();
  if (write(2, "up\n", 3) != 3) return 4;
  for (;;) fill(), usleep(1000);
}
"""


@contextmanager
def churning(command: list[str], library: str = LIBRARIES[0]) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / library)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE) as child:
        try:
            assert child.stderr is not None and child.stderr.readline() == b"up\n"
            yield child
        finally:
            child.kill()


def found_names(pid: int, wanted: str) -> set[str]:
    names: set[str] = set()
    while not any(re.search(wanted, name) for name in names):
        profile = profiling.look([pid], 4096, 0.2)[0]
        names |= {frame.function for stack, _ in profile.samples for frame in stack}
    return names


def test_a_stripped_program_shows_module_and_offset(compile_to_preload: Compile, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, compile_to_preload("churn.c", CHURNING)], check=True)
    with churning([str(stripped)]) as child:
        found_names(child.pid, r"^stripped\+0x[0-9a-f]{3,5}$")


def test_names_come_from_where_the_process_sees_its_files(compile_to_preload: Compile, tmp_path: Path) -> None:
    """As in a container: the program lies where this process has no such file."""
    program = compile_to_preload("churn.c", CHURNING)
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"mount -t tmpfs none {inside} && cp {program} {inside}/app && exec {inside}/app"
    command = ["unshare", "-m", "sh", "-c", script]
    if shutil.which("unshare") is None or subprocess.run([*command[:-1], f"mount -t tmpfs none {inside}"]).returncode:
        pytest.skip("no mount namespace can be made here")
    with churning(command) as child:
        assert not (inside / "app").exists()
        found_names(child.pid, r"^fill$")


# Large blocks, which the hardened build keeps from being read once they are freed; the addresses stay known.
LARGE = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char *kept[256], *freed[256];
int main(void) {
  if (write(2, "up\n", 3) != 3) return 4;
  for (unsigned seed = 1;; seed = seed * 1664525 + 1013904223) {
    const unsigned i = seed >> 24;
    const size_t bytes = 20000 + seed / 7 % 400000;
    if (kept[i] != NULL && (kept[i][0] != (char)i || kept[i][19999] != (char)i)) return 5;
    freed[i] = kept[i];
    free(kept[i]);
    kept[i] = malloc(bytes);
    kept[i][0] = kept[i][19999] = (char)i;
    if (i == 0) usleep(100);  // the processor is shared with other tests
  }
}
"""


@both
def test_a_search_for_leaks_meets_threads_anywhere(compile_to_preload: Compile, library: str) -> None:
    with churning([str(compile_to_preload("large.c", LARGE))], library) as child:
        process = Process(child.pid)
        with attach.sampled(process, 256 * 1024):
            for _ in range(40):
                assert b'"sites"' in process.leaks() and child.poll() is None


SEALED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  void *volatile block = malloc(300000);
  char c;
  free(block);
  fprintf(stderr, "up\n");
  if (read(0, &c, 1) != 1) return 5;
  free(block);
  return 0;
}
"""


def test_a_search_for_leaks_gives_no_block_back(compile_to_preload: Compile) -> None:
    """It runs on a thread that may be in the midst of a free. Once the block went back, its free is "invalid"."""
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / LIBRARIES[1])}
    program, pipe = compile_to_preload("sealed.c", SEALED), subprocess.PIPE
    with subprocess.Popen([program], env=env, stdin=pipe, stderr=pipe, text=True) as child:
        assert child.stderr is not None and child.stderr.readline() == "up\n"
        assert Process(child.pid).leaks()
        _, said = child.communicate("x")
        assert "double free" in said


@pytest.mark.programs
def test_sampling_ends_by_itself_when_the_looker_is_killed(compile_to_preload: Compile) -> None:
    with churning([str(compile_to_preload("churn.c", CHURNING))]) as child:
        process = Process(child.pid)

        def look() -> None:
            with attach.sampled(process, 4096), attach.shown(child.pid):
                threading.Event().wait()

        with looker(process, look):
            until = time.monotonic() + 12
            while not process.is_profiling():
                time.sleep(0.05)
            while time.monotonic() < until:
                assert process.is_profiling(), "its looker lives"
                time.sleep(0.5)
        while process.is_profiling() or page_path(child.pid).exists():
            time.sleep(0.1)
