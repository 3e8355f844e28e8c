"""One measured process: the figures are the program's, not the watcher's, the wrapper's or a dead run's."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from peers_tools import compiled

from freestone_lab.measure import counts, process, tree
from freestone_lab.measure.process import Placement, Request, Run
from freestone_lab.measure.recognise import NotBatch, Watcher

PYTHON = os.path.realpath(sys.executable)
PROGRAMS = Path(__file__).parents[1] / "programs"


# Waits until the launcher, a parent or its parent, has looked: it sleeps after each look.
UNTIL_SEEN = """
import re, time
def parent(pid): return re.search(r"PPid:\\s*(\\d+)", open(f"/proc/{pid}/status").read())[1]
def sleeps(pid): return int(re.search(r"\\nvoluntary_ctxt_switches:\\s*(\\d+)", open(f"/proc/{pid}/status").read())[1])
def until_seen(pid, looks=3):
  enough = sleeps(pid) + looks
  while sleeps(pid) < enough: time.sleep(.01)
"""


@pytest.fixture(scope="module")
def maps(built: Path) -> Path:
    return compiled(built / "maps", PROGRAMS / "maps.c", "-I", str(Path(process.__file__).parent / "native"))


def run(folder: Path, argv: Sequence[str], **more: object) -> Run:
    request = Request(argv=argv, env={"PATH": os.environ["PATH"]}, cwd=folder, **more)  # type: ignore[arg-type]
    return process.run(request, folder / "stdout", folder / "stderr")


def test_exit_status_output_and_time(tmp_path: Path) -> None:
    found = run(tmp_path, ["/bin/sh", "-c", "echo said; echo wrong >&2; sleep 0.2; exit 7"])
    assert (found.exit_status, found.signal, found.failure) == (7, 0, None)
    assert (tmp_path / "stdout").read_text() == "said\n"
    assert process.tail(tmp_path / "stderr") == "wrong"
    assert found.wall_s >= 0.2


def test_cpu_time_is_split_from_waiting(tmp_path: Path) -> None:
    busy = run(tmp_path, [PYTHON, "-S", "-c", "import time\nwhile time.process_time() < 0.3: pass"])
    idle = run(tmp_path, ["/bin/sleep", "0.3"])
    assert busy.user_s + busy.sys_s >= 0.29
    assert idle.user_s + idle.sys_s < 0.1


def test_peak_memory_is_not_the_callers(tmp_path: Path) -> None:
    ballast = bytearray(150 << 20)  # this process is large; exec would hand its peak on
    assert psutil.Process().memory_info().rss > 150 << 20
    found = run(tmp_path, ["/bin/true"])
    assert found.rss_kib < 8 << 10
    del ballast


def test_peak_memory_is_the_trees_not_the_wrappers(tmp_path: Path) -> None:
    # Each waits until the other has its memory too, however late that is, and stays for a look at shares: every tenth.
    code = (
        f"{UNTIL_SEEN}import pathlib, sys; x = bytearray(100 << 20); pathlib.Path(sys.argv[1]).touch()\n"
        "while not pathlib.Path(sys.argv[2]).exists(): time.sleep(.01)\n"
        "until_seen(parent(parent('self')), 12)"
    )
    hogs = [shlex.join([PYTHON, "-S", "-c", code, str(tmp_path / a), str(tmp_path / b)]) for a, b in ("xy", "yx")]
    found = run(tmp_path, ["/bin/sh", "-c", f"{hogs[0]} & {hogs[1]} & wait"])
    assert found.rss_kib > 200 << 10
    assert found.processes >= 3
    assert found.pss_kib is not None and 180 << 10 < found.pss_kib <= found.rss_kib


@pytest.mark.parametrize("own_mib", [0, 20])
def test_memory_that_processes_share_counts_once(own_mib: int, tmp_path: Path) -> None:
    # Five children of a process of 60 MiB share its pages until they write; summed, they would hold 360 MiB.
    code = (
        f"{UNTIL_SEEN}import os; x = bytearray(60 << 20); ready, tell = os.pipe(); wait, end = os.pipe()\n"
        "for _ in range(5):\n"
        "  if not os.fork():\n"
        "    os.close(end)\n"
        f"    for at in range(0, {own_mib} << 20, 4096): x[at] = 1\n"
        "    os.write(tell, b'x'); os.read(wait, 1); os._exit(0)\n"
        "for _ in range(5): os.read(ready, 1)\n"
        "until_seen(parent('self'), 200); os.close(end)\n"  # a look at shares may come 20 times its own time later
        "for _ in range(5): os.wait()\n"
    )
    found = run(tmp_path, [PYTHON, "-S", "-c", code])
    assert found.processes == 6
    expected = 60 + 5 * own_mib
    assert expected << 10 < found.rss_kib < (expected + 40) << 10
    assert max(kib for _, kib in found.rss_series) < (expected + 60) << 10, "so does the curve"


def test_memory_of_a_short_peak_is_seen_by_the_kernel_even_between_looks(tmp_path: Path, work: Path) -> None:
    found = run(tmp_path, [str(work), "1000", "200000"])
    assert found.rss_kib > 64 * 200000 // 1024 * 0.9


def test_memory_curve_rises_and_falls(tmp_path: Path) -> None:
    seen = "until_seen(parent('self'))"
    code = f"{UNTIL_SEEN}{seen}; x = bytearray(80 << 20); {seen}; del x; {seen}"
    found = run(tmp_path, [PYTHON, "-S", "-c", code])
    values = [kib for _, kib in found.rss_series]
    assert max(values) > 80 << 10
    assert values[-1] < 60 << 10
    assert all(a[0] <= b[0] for a, b in zip(found.rss_series, found.rss_series[1:], strict=False))


@pytest.mark.parametrize(
    ("argv0", "expected"),
    [
        ("/usr/bin/redis-server", "redis-server"),  # a link, as Debian has it: its file is redis-check-rdb
        ("redis-server", "redis-server"),
        ("/opt/a-name-beyond-fifteen-letters", "a-name-beyond-fifteen-letters"),
        ("-bash", "bash"),
        ("/usr/bin/redis-server 127.0.0.1:6379", "the-kernels-nam"),
        ("nginx: master process /usr/sbin/nginx -g daemon", "the-kernels-nam"),
        ("sshd:", "the-kernels-nam"),
        ("", "the-kernels-nam"),
    ],
)
def test_a_process_has_the_name_that_it_was_started_by(argv0: str, expected: str, tmp_path: Path) -> None:
    link = tmp_path / "the-kernels-name-of-it"
    link.symlink_to("/bin/cat")
    pipe = subprocess.PIPE  # and a folder: without one Python 3.13 takes posix_spawn, which refuses an empty name
    with subprocess.Popen([argv0], executable=link, cwd=tmp_path, stdin=pipe, stdout=pipe) as echoing:
        assert echoing.stdin is not None and echoing.stdout is not None
        echoing.stdin.write(b"up\n")
        echoing.stdin.flush()
        assert echoing.stdout.readline() == b"up\n"
        assert tree.program_of(echoing.pid) == expected
    assert tree.program_of(echoing.pid) == "", "it is gone"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("program", "libc.so.6", "lib.so", "[stack]"), 1),
        (("program", "libc.so.6", "lib.so"), 1),
        (("program", "libc.so.6", "[stack]"), 0),
        (("program", "libc.so.6"), -1),  # the program ended while they were read
        (("program", "[stack]"), -1),  # the linker has not come to it yet
        ((), -1),
    ],
)
def test_a_library_is_missing_only_where_all_maps_were_seen(maps: Path, names: Sequence[str], expected: int) -> None:
    text = "".join(f"7f00-7f01 r-xp 0 0:0 0  {name if '[' in name else f'/usr/lib/{name}'}\n" for name in names)
    done = subprocess.run([str(maps), text, "/usr/lib/lib.so"], capture_output=True, text=True, check=True)
    assert int(done.stdout) == expected


def test_page_faults_are_counted(tmp_path: Path) -> None:
    few = run(tmp_path, ["/bin/true"])
    many = run(tmp_path, [PYTHON, "-S", "-c", "x = bytearray(64 << 20)"])
    assert many.minor_faults > few.minor_faults + 10_000


def test_a_run_that_does_not_end_is_stopped_with_everything_it_started(tmp_path: Path) -> None:
    begun = time.monotonic()
    found = run(tmp_path, ["/bin/sh", "-c", "sleep 987 & setsid sleep 987 & wait"], timeout_s=1)
    assert found.timed_out and found.failure is not None and found.failure.startswith("stopped after")
    assert time.monotonic() - begun < 900, "it ended because its child did"
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]]


def test_daemons_left_behind_are_killed(tmp_path: Path) -> None:
    found = run(tmp_path, ["/bin/sh", "-c", "setsid sleep 986 >/dev/null 2>&1 & exit 0"])
    assert found.exit_status == 0
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "986"]]


def test_death_by_signal_and_missing_program_are_told_apart(tmp_path: Path) -> None:
    killed = run(tmp_path, ["/bin/sh", "-c", "kill -SEGV $$"])
    assert killed.failure == "killed by SIGSEGV"
    absent = run(tmp_path, ["/nowhere/program"])
    assert absent.failure == "does not start: No such file or directory"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_the_program_is_pinned_and_the_watcher_is_not_beside_it(tmp_path: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    run(tmp_path, [PYTHON, "-S", "-c", code], placement=Placement((second,), (first,)))
    assert (tmp_path / "stdout").read_text() == f"[{second}]\n"


def test_address_space_limit_reaches_the_program(tmp_path: Path, work: Path) -> None:
    found = run(tmp_path, [str(work), "1000", "9000000"], address_space_kib=100_000)
    assert found.exit_status == 1
    assert "answered NULL" in process.tail(tmp_path / "stderr")


def test_gauges_are_there(tmp_path: Path) -> None:
    found = run(tmp_path, ["/bin/sleep", "0.05"])
    assert {"steal", "iowait", "cpu_pressure", "load", "involuntary_switches"} <= found.gauges.keys()
    assert 0 <= found.gauges["steal"] <= 1


SERVES_FROM_A_CHILD = """import os, socket, time
if os.fork() == 0:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    time.sleep(60)
"""


def test_who_looks_late_still_sees_that_the_program_forked_away(tmp_path: Path) -> None:
    argv = [PYTHON, "-S", "-c", SERVES_FROM_A_CHILD]
    request = Request(argv=argv, env={"PATH": os.environ["PATH"]}, cwd=tmp_path, linger_ms=60_000)
    watcher = Watcher(argv, PYTHON)
    with pytest.raises(NotBatch, match="forks away"):
        process.run(request, tmp_path / "stdout", tmp_path / "stderr", watcher, every_s=1.0)
    assert watcher.look.kind == "daemon"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_pass_that_counts_runs_the_program_as_the_others_do(tmp_path: Path) -> None:
    """grep ends at its first match when it writes to /dev/null."""
    script = "found=$(readlink /proc/$$/fd/1); echo $found > seen"
    assert counts.syscalls(("sh", "-c", script), dict(os.environ), tmp_path, None, tmp_path)
    assert (tmp_path / "seen").read_text().strip() != "/dev/null"
