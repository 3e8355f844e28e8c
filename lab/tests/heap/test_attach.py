"""A process that runs is looked at by its number, without having been prepared, and goes on as if nothing happened."""

import json
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
from command_tools import CLI
from server_tools import runs

from freestone_lab.core import elf, paths
from freestone_lab.core.errors import UserError
from freestone_lab.flamegraph.readers import parse_profile
from freestone_lab.heap import attach, loaded, profiling, snapshot
from freestone_lab.heap.attach import Process
from freestone_lab.heap.symbolize import by_place, symbolize

Compile = Callable[[str, str], Path]
LIBRARIES = ("libfreestone.so", "libfreestone-hardened.so")
both = pytest.mark.parametrize("library", LIBRARIES)
IDLE = "background_purge:true"

# Four threads: one allocates, one computes and compares, one sleeps and sees each time whether it slept for long
# enough, one waits in the kernel.
SOURCE = r"""
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <time.h>
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
  std::thread sleeping([] {
    for (const timespec pause = {0, 5000000}; !stop;)
      if (nanosleep(&pause, nullptr) != 0 && getenv("INTERRUPTED") == nullptr) _exit(6);
  });
  char line[8];
  if (write(2, "up\n", 3) != 3) return 4;
  if (read(0, line, sizeof line) < 0) return 5;
  stop = true;
  allocating.join();
  computing.join();
  sleeping.join();
  return 0;
}
"""
# The same blocks again and again, which the thread's cache always serves.
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
SERVER = r"""
#include <cstdlib>
#include <cstring>
#include <unistd.h>
static void* kept;
__attribute__((noinline)) void lose(size_t bytes) { memset(kept = malloc(bytes), 1, bytes); kept = nullptr; }
int main() {
  for (int i = 0; i < 1000; ++i) lose(5000);
  if (write(1, "up\n", 3) != 3 || write(2, "up\n", 3) != 3) return 4;
  for (;;) pause();
}
"""


@pytest.fixture(scope="module")
def program(compile_to_preload: Compile) -> Path:
    return compile_to_preload("churning.cc", SOURCE)


@pytest.fixture(scope="module")
def server(compile_to_preload: Compile) -> Path:
    return compile_to_preload("losing.cc", SERVER)


@pytest.fixture(params=LIBRARIES)
def running(program: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    with runs("/usr/bin/served", executable=program, library=request.param) as child:
        yield child


# The commands on top are the same for both builds.
stock = pytest.mark.parametrize("running", LIBRARIES[:1], indirect=True)


def ended_well(child: subprocess.Popen[bytes]) -> bool:
    assert child.stdin is not None
    child.stdin.close()
    return child.wait() == 0


def found_names(pid: int, wanted: str) -> set[str]:
    """The functions in profiles that are taken until the wanted one is among them."""
    names: set[str] = set()
    while not any(re.search(wanted, name) for name in names):
        profile = profiling.look([pid], 4096, 0.2)[0]
        names |= {frame.function for stack, _ in profile.samples for frame in stack}
    return names


@contextmanager
def looker(look: Callable[[], object]) -> Iterator[None]:
    """A process that looks without a pause, and is killed."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            while True:
                look()
        os._exit(1)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_looks_that_take_turns_disturb_nothing(running: subprocess.Popen[bytes]) -> None:
    script = (
        "import sys; from freestone_lab.heap import attach\n"
        "process = attach.Process(int(sys.argv[1]))\n"
        "for _ in range(20): process.statistics(); process.profile()"
    )
    lookers = [subprocess.Popen([sys.executable, "-c", script, str(running.pid)]) for _ in range(4)]
    assert [one.wait() for one in lookers] == [0] * 4
    assert Process(running.pid).statistics().pid == running.pid
    assert ended_well(running)


def test_a_profile_by_number_names_what_allocates(running: subprocess.Popen[bytes]) -> None:
    found_names(running.pid, "^take")
    assert not Process(running.pid).is_sampling()
    assert ended_well(running)


@both
def test_a_program_whose_cache_always_hits_answers(compile_to_preload: Compile, library: str) -> None:
    with runs(compile_to_preload("churn.c", CHURNING), library=library) as child:
        for _ in range(20):
            assert Process(child.pid).profile()
        found_names(child.pid, "^fill$")


@both
def test_a_looker_may_be_killed_at_any_instant(
    program: Path, library: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was switched on ends by itself, and no earlier; the long form waits for that."""
    long = request.config.getoption("--programs")
    monkeypatch.setattr(attach, "CLAIM_S", 0.01)
    draw = random.Random(seed := random.randrange(1 << 30))
    print(f"seed {seed}")
    with runs(program, library=library, INTERRUPTED="1") as child:
        process = Process(child.pid)

        def look() -> None:
            with attach.Look(Process(child.pid), 4096) as one:
                while not one.began():
                    pass
                process.profile()
                process.leaks()

        for _ in range(200 if long else 20):
            with looker(look):
                time.sleep(draw.random() * 0.1)
        assert process.statistics().pid == child.pid
        while long and process.is_sampling():
            time.sleep(0.1)
        if long:
            with looker(lambda: attach.Look(process, 4096).__enter__() and threading.Event().wait()):
                while not process.is_sampling():
                    time.sleep(0.05)
                until = time.monotonic() + 12
                while time.monotonic() < until:
                    assert process.is_sampling(), "its looker lives"
                    time.sleep(0.5)
        assert ended_well(child)


def test_an_idle_program_is_named_with_the_way_out(server: Path) -> None:
    with runs(server) as child, pytest.raises(UserError, match=f"does not answer.*FREESTONE_CONF={IDLE}"):
        Process(child.pid).ask(attach.Errand.write_profile, 0, 0.3)
    with runs(server, FREESTONE_DISABLE="1") as child, pytest.raises(UserError, match="has switched libfreestone off"):
        Process(child.pid).ask(attach.Errand.write_profile, 0, 0.3)


@both
def test_an_idle_program_answers_where_the_background_thread_runs(server: Path, library: str) -> None:
    with runs(server, library=library, FREESTONE_CONF=IDLE) as child:
        process = Process(child.pid)
        assert process.statistics().figure("live_blocks") >= 1000
        with attach.Look(process, 4096) as look:
            while not look.began():
                time.sleep(0.01)
            assert look.own and process.profile() and b'"scanned": true' in process.leaks()
        assert profiling.look([child.pid], 4096, 1.2)


def test_an_idle_program_may_begin_late(compile_to_preload: Compile) -> None:
    """The request waits in it; what it allocates from then on is seen."""
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
    with runs(compile_to_preload("phases.c", source)) as child:
        process = Process(child.pid)

        def look(phase: bytes) -> str:
            """The function that its look saw, and no other: a look counts only its own time."""
            assert child.stdin and child.stdout
            with attach.Look(process, 64 * 1024) as one:
                assert not one.began()
                child.stdin.write(phase)
                assert child.stdout.read(1) == b"\0" and one.began()
                with process.asked(attach.Errand.write_profile, attach.PPROF) as answer:
                    child.stdin.write(phase)
                    assert child.stdout.read(1) == b"\0"
                    text = answer()
            assert text is not None
            found = by_place(symbolize(parse_profile(text.text, "")))
            assert "samples of what was allocated" in profiling.summary(found)
            names = {frame.function.split("(")[0] for stack, _ in found.samples for frame in stack}
            return " ".join(names & {"first", "second"})

        assert look(b"1") == "first"
        assert look(b"2") == "second"
        assert ended_well(child)


def test_who_may_not_be_looked_at_is_told_why(
    program: Path, static_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="no process has the number 4194304"):
        Process(4194304)
    for command in (["sleep", "1000"], [str(static_program), "1000000"]):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
            with pytest.raises(UserError, match="does not run under libfreestone; start it with"):
                Process(child.pid)
            child.kill()
    copy, other = tmp_path / "libfreestone-copy.so", tmp_path / "libfreestone-other.so"
    shutil.copy(paths.build_dir() / LIBRARIES[0], copy)
    shutil.copy(paths.build_dir() / "libcontrol-passthrough.so", other)
    with runs(program, library=str(other)) as child, pytest.raises(UserError, match="another version of libfreestone"):
        Process(child.pid)
    with runs(program, library=str(copy)) as child:
        assert Process(child.pid).statistics()
        shutil.copy(paths.build_dir() / LIBRARIES[1], tmp_path / "new")
        (tmp_path / "new").rename(copy)
        if os.geteuid() == 0:
            assert Process(child.pid).statistics(), "root reads the file that is mapped"
        real = loaded._places
        monkeypatch.setattr(loaded, "_places", lambda path, *more: real(path, *more) if "root" in path.parts else None)
        with pytest.raises(UserError, match="another build than the file"):
            Process(child.pid)
    with runs(program) as child:
        process = Process(child.pid)
        child.kill()
        child.wait()
        with pytest.raises(UserError, match=f"process {child.pid} has ended"):
            process.statistics()


@pytest.mark.parametrize(("user", "said"), [(0, "CAP_SYS_PTRACE"), (1000, "try it as root")])
def test_root_is_not_told_to_try_it_as_root(user: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, *_: object, **more: object) -> str:
        raise PermissionError

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(UserError, match=said) as caught:
        Process(1)
    assert ("as root" in str(caught.value)) == (user != 0)


@pytest.mark.parametrize("tool", [("valgrind", "--tool=none"), ("ld.so",)], ids=["valgrind", "linker"])
def test_a_look_does_no_harm_where_something_else_starts_the_program(tool: tuple[str, ...], program: Path) -> None:
    linker = elf.interpreter(program)
    assert linker is not None
    if shutil.which(tool[0]) is None and tool != ("ld.so",):
        pytest.skip(f"there is no {tool[0]}")
    with runs(*([linker] if tool == ("ld.so",) else tool), program) as child:
        assert Process(child.pid).ask(attach.Errand.write_profile, 0, 60).result == 0
        assert ended_well(child)


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


@pytest.mark.parametrize("words", [(), ("service",)], ids=["the filter would end it", "the filter allows it"])
def test_a_process_that_filters_its_system_calls(words: tuple[str, ...], compile_to_preload: Compile) -> None:
    if words and os.geteuid() != 0:
        pytest.skip("only root may read a filter")
    with runs(compile_to_preload("filtered.c", FILTERED), *words) as child:
        process = Process(child.pid)
        assert process.statistics(), "it is not asked"
        for look in (process.profile, process.leaks, lambda: found_names(child.pid, "^fill$")):
            if words:
                assert look()
            else:
                with pytest.raises(UserError, match="filters its system calls"):
                    look()
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


def test_names_come_from_where_the_process_sees_its_files(compile_to_preload: Compile, tmp_path: Path) -> None:
    """As in a container: the program lies where this process has no such file. A stripped one shows offsets."""
    program = compile_to_preload("churn.c", CHURNING)
    subprocess.run(["strip", "-o", tmp_path / "stripped", program], check=True)
    with runs(tmp_path / "stripped") as child:
        found_names(child.pid, r"^stripped\+0x[0-9a-f]{3,5}$")
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"mount -t tmpfs none {inside} && cp {program} {inside}/app && exec {inside}/app"
    command = ["unshare", "-m", "sh", "-c", script]
    if shutil.which("unshare") is None or subprocess.run([*command[:-1], f"mount -t tmpfs none {inside}"]).returncode:
        pytest.skip("no mount namespace can be made here")
    with runs(*command) as child:
        assert not (inside / "app").exists()
        found_names(child.pid, r"^fill$")


# Large blocks, which the hardened build keeps from being read once they are freed; the addresses stay known. One thread
# has an alternate stack.
LARGE = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static char *kept[256], *freed[256];
static void *turn(void *unused) {
  const stack_t other = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&other, NULL);
  for (;;) {
    char *own = malloc(300000);
    own[0] = own[299999] = 1;
    usleep(200);
    free(own);
  }
  return unused;
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, turn, NULL);
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
    """More often than there are signals, so it takes the same again."""
    with runs(compile_to_preload("large.c", LARGE), library=library) as child:
        process = Process(child.pid)
        with attach.Look(process, 256 * 1024) as look:
            while not look.began():
                time.sleep(0.001)
            for _ in range(40):
                assert b'"scanned": true' in process.leaks() and child.poll() is None


def freestone(*words: str) -> subprocess.Popen[str]:
    """The command where a hangup is ignored, as under nohup."""
    command = ["env", "--ignore-signal=HUP", *CLI, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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


@pytest.mark.parametrize("command", [["run"], ["profile", "-o"], ["leaks", "--json"], ["record", "-o"]])
def test_a_script_without_a_first_line_keeps_its_status(command: list[str], program: Path, tmp_path: Path) -> None:
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
    out, err = looking.communicate(timeout=1200)
    assert (looking.returncode, err) == (0, "") and f"process {running.pid}" in out


@stock
def test_a_profile_by_number_lets_the_process_go_on(running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    page = tmp_path / "heap.html"
    looking = freestone("profile", "--pid", str(running.pid), "--for", "1s", "-o", str(page))
    _, errors = looking.communicate()
    assert (looking.returncode, running.poll()) == (0, None), errors
    assert "churn" in page.read_text()
    assert f"served (process {running.pid})" in page.read_text(), "by the name that it was started by"
    assert not Process(running.pid).is_sampling()
    assert ended_well(running)


@stock
def test_ctrl_c_ends_the_look_and_not_the_program(running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    page = tmp_path / "heap.html"
    looking = freestone("profile", "--pid", str(running.pid), "-o", str(page))
    process = Process(running.pid)
    while not process.is_sampling():
        time.sleep(0.05)
    looking.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert looking.poll() is None and process.is_sampling()
    looking.send_signal(signal.SIGINT)
    assert looking.wait() == 0
    assert page.exists()
    assert ended_well(running)


def test_two_searches_for_leaks_by_number_find_no_block_that_is_held(program: Path) -> None:
    with runs(program, INTERRUPTED="1") as child:
        for _ in range(2):
            looking = freestone("leaks", "--pid", str(child.pid), "--for", "1s")
            _, errors = looking.communicate()
            assert looking.returncode == 0, errors
            assert "nothing lost" in errors
        assert ended_well(child)


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
    assert watched.wait(1200) == 128 + (number or signal.SIGTERM)
    assert "lose" in page.read_text()


@pytest.mark.parametrize("time_", [[], ["--for", "1s"]])
def test_a_server_that_ctrl_c_or_the_time_ends_has_its_leaks_reported(time_: list[str], server: Path) -> None:
    watched = freestone("leaks", *time_, "--", str(server))
    assert watched.stdout is not None and watched.stdout.readline() == "up\n"
    if not time_:
        watched.send_signal(signal.SIGINT)
    _, errors = watched.communicate(timeout=1200)
    assert watched.returncode == 23
    assert "lose" in errors and "blocks lost" in errors


def test_all_numbers_that_pidof_prints_are_looked_at(program: Path, server: Path, tmp_path: Path) -> None:
    page, gone = tmp_path / "heap.html", "4194304"
    first = runs("/usr/bin/served", executable=program, INTERRUPTED="1")
    with first as running, runs(server, "second", FREESTONE_CONF=IDLE) as other:
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
        assert ended_well(running)


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
