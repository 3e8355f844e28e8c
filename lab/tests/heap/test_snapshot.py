"""`freestone stats` and `freestone top` on a real process, on real files, and on what is no such thing."""

import dataclasses
import errno
import io
import itertools
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from server_tools import runs

from freestone_lab import cli
from freestone_lab.core.errors import UserError
from freestone_lab.heap import keys, top
from freestone_lab.heap import snapshot as stats

SOURCE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  static void* blocks[5000];
  for (int round = 0; round < atoi(argv[1]); ++round) {
    for (int i = 0; i < 5000; ++i) {
      free(blocks[i]);
      blocks[i] = malloc(1000 + i % 7 * 1000);
      memset(blocks[i], 1, 100);
    }
    if (round == 0 && write(2, "up\\n", 3) != 3) return 4;
    usleep(20000);
  }
  return argc == 9;
}
"""


@pytest.fixture(scope="module")
def program(compile_to_preload: Callable[[str, str], Path]) -> Path:
    return compile_to_preload("rounds.c", SOURCE)


@pytest.fixture
def running(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a live page that works until it is killed."""
    with runs(program, "1000000", FREESTONE_CONF="live_page:true") as process:
        while not stats.page_path(process.pid).exists():
            assert process.poll() is None, "it ended without showing itself"
            time.sleep(0.01)
        yield process
    stats.page_path(process.pid).unlink(missing_ok=True)


def screen(out: io.StringIO, width: int = 120, height: int = 40, terminal: bool = False) -> top.Screen:
    return top.Screen(out, width, height, terminal, colour=False)


def run_to_file(program: Path, path: Path) -> stats.Snapshot:
    with runs(program, "3", FREESTONE_CONF=f"stats_file:{path}") as process:
        assert process.wait() == 0
    return stats.from_file(path)


def test_a_live_page_is_read_and_its_parts_add_up(running: subprocess.Popen[bytes]) -> None:
    snapshot = stats.from_process(running.pid)
    assert (snapshot.pid, snapshot.program) == (running.pid, "rounds 1000000")
    assert sum(size for _, size in snapshot.parts()) == snapshot.figure("charged_bytes")
    live = sum(c.bytes * c.live for c in snapshot.classes)
    assert live + snapshot.figure("large_bytes") + snapshot.figure("mapped_bytes") == snapshot.figure("live_bytes")
    assert snapshot.threads[0].id == running.pid
    assert 0 <= stats.age_seconds(snapshot) < 30


def test_the_running_processes_are_listed_and_dead_pages_removed(running: subprocess.Popen[bytes]) -> None:
    assert running.pid in [s.pid for s in stats.running()]
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert stats.page_path(running.pid).exists(), "a killed process cannot remove its page"
    assert running.pid not in [s.pid for s in stats.running()]
    assert not stats.page_path(running.pid).exists()


def test_a_dead_page_of_another_user_hides_nothing(
    running: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    live = stats.page_path(running.pid)
    monkeypatch.setattr(stats, "PAGES", tmp_path)
    for pid in (running.pid, 2**22):  # more than Linux has
        shutil.copy(live, stats.page_path(pid))
    monkeypatch.setattr(Path, "unlink", refuse)
    assert [s.pid for s in stats.running()] == [running.pid]


def test_both_kinds_of_file_say_the_same(program: Path, tmp_path: Path) -> None:
    in_json = run_to_file(program, tmp_path / "s.json")
    in_metrics = run_to_file(program, tmp_path / "s.om")
    names = in_json.figures.keys() - {"fragmentation"}
    assert names == in_metrics.figures.keys() - {"fragmentation_ratio"}
    for name in ("live_bytes", "live_blocks", "threads"):
        assert in_json.figure(name) == in_metrics.figure(name)
    assert [(c.bytes, c.live) for c in in_json.classes] == [(c.bytes, c.live) for c in in_metrics.classes]
    assert in_json.system_calls.keys() == in_metrics.system_calls.keys()


def test_prometheus_own_parser_reads_the_file(program: Path, tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus_client is not installed")
    snapshot = run_to_file(program, tmp_path / "s.om")
    families = {f.name: f for f in parser.text_string_to_metric_families((tmp_path / "s.om").read_text())}
    assert families["freestone_live_bytes"].type == "gauge"
    assert families["freestone_live_bytes"].unit == "bytes"
    assert families["freestone_live_bytes"].samples[0].value == snapshot.figure("live_bytes")
    assert families["freestone_purge_calls"].type == "counter"
    assert families["freestone_live_bytes"].samples[0].labels["program"] == "rounds"


def test_top_draws_a_running_process_and_ends_with_it(running: subprocess.Popen[bytes]) -> None:
    out = io.StringIO()
    top.watch(screen(out), running.pid, partial(stats.from_process, running.pid), 0.6, 2)
    text = out.getvalue()
    assert text.count(f"process {running.pid}") == 2
    for word in ("thread caches", "slabs, free", "peak of charged", "live blocks", "slow paths"):
        assert word in text
    asked = []

    def end_it(_seconds: float) -> None:
        asked.append(1)
        running.kill()
        running.wait()
        stats.page_path(running.pid).unlink(missing_ok=True)

    last = io.StringIO()
    top.watch(screen(last), running.pid, partial(stats.from_process, running.pid), 0.1, None, sleep=end_it)
    assert asked == [1], "a process that ended ends the view"
    assert last.getvalue().endswith(f"process {running.pid} has ended\n")


def test_a_page_that_a_killed_process_left_is_not_shown(running: subprocess.Popen[bytes]) -> None:
    running.kill()
    running.wait()
    assert stats.page_path(running.pid).exists()
    for command in ("top", "stats"):
        with pytest.raises(UserError, match=f"process {running.pid}") as caught:
            if command == "stats":
                stats.from_process(running.pid)
            else:
                top.watch(screen(io.StringIO()), running.pid, partial(stats.from_process, running.pid), 0.1, 1)
        assert "ended" in str(caught.value)
    assert not stats.page_path(running.pid).exists()


def test_rates_and_curve_come_from_the_snapshots() -> None:
    def at(ms: int, size: float) -> stats.Snapshot:
        return stats.Snapshot(1, "p", "", "", ms, {"charged_bytes": size})

    history = top.History()
    history.add(at(1000, 100))

    def rate() -> float | None:
        return history.rate(lambda s: s.figures["charged_bytes"])

    assert rate() is None
    history.add(at(1500, 200))
    history.add(at(1500, 200))
    assert len(history.snapshots) == 2
    assert rate() == 200
    assert history.course("charged_bytes", 4) == "   █", "nothing is known of the time before"
    history.add(at(31_500, 50))
    assert history.course("charged_bytes", 4) == " ██▂"
    history.add(at(91_000, 100))
    assert len(history.snapshots) == 2, "the last minute"


def test_keys_sort_choose_freeze_and_end() -> None:
    view = keys.View()
    assert (view.tables, view.classes_by, view.threads_by) == (("classes", "threads"), "bytes", "cached")
    orders = []
    for _ in keys.ORDERS:
        orders.append((view.classes_by, view.threads_by))
        view = typing.cast(keys.View, view.after("s"))
    assert tuple(orders) == keys.ORDERS and view == keys.View(), "every order once, then the first again"
    for key, tables in keys.TABLES.items():
        after = view.after(key)
        assert after is not None and after.tables == tables
    frozen = view.after("f")
    assert frozen is not None and frozen.frozen and frozen.after(" ") == view
    assert view.after("x") == view and view.after("q") is None
    for name in ("sort", "classes", "threads", "both", "freeze", "quit"):
        assert name in keys.HELP


@pytest.mark.parametrize("order", range(len(keys.ORDERS)))
def test_tables_are_in_the_order_that_is_asked_for(order: int) -> None:
    sizes = tuple(stats.SizeClass(bytes=16 << k, live=(7 * k) % 5, cached=(3 * k) % 5) for k in range(5))
    threads = tuple(stats.Thread(100 + k, 7 * k % 5, 3 * k % 5, 2 * k % 5) for k in range(5))
    snapshot = stats.Snapshot(1, "p", "", "", 1, {}, {}, sizes, threads)
    by = keys.View(order=order)
    for lines, column in ((top.classes(snapshot, 5, by.classes_by), by.classes_by),
                          (top.threads(snapshot, 5, by.threads_by), by.threads_by)):  # fmt: skip
        place = re.split(r"  +", top._STYLE.sub("", lines[0]).strip()).index(f"{column}▾")
        shown = [re.split(r"  +", line.strip())[place] for line in lines[1:]]
        numbers = [float(text.replace(",", "").split()[0]) for text in shown]
        assert numbers == sorted(numbers, reverse=True), lines


def test_top_obeys_keys_and_a_frozen_picture_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = (stats.Thread(1, 2, 3, 4),)
    taken = (
        stats.Snapshot(7, "p", "", "", ms, {"charged_bytes": ms}, {}, (stats.SizeClass(16, ms, 0),), threads)
        for ms in itertools.count(1000, 500)
    )
    monkeypatch.setattr(stats, "age_seconds", lambda snapshot: 0.0)
    out = io.StringIO()
    typed = iter(["t", "c", "f", "", "", "f", "q"])
    pictures: list[str] = []

    def pressed(_seconds: float) -> str:
        pictures.append(out.getvalue().rpartition("process 7")[2])
        return next(typed)

    top.watch(screen(out, terminal=True), 7, lambda: next(taken), 0.1, None, pressed=pressed)
    assert ["slow paths" in p for p in pictures] == [True, True, *[False] * 5]
    assert ["bytes▾" in p for p in pictures] == [True, False, *[True] * 5]
    assert pictures[3] == pictures[4] == pictures[5] and "frozen" in pictures[3]
    assert pictures[6] != pictures[5] and "frozen" not in pictures[6]
    assert keys.HELP in pictures[0] and "has ended" not in out.getvalue()


def test_keys_are_read_without_enter_and_the_terminal_is_as_before() -> None:
    """As typed on a terminal: an arrow is no Escape."""
    code = (
        "import termios; from freestone_lab.heap import keys\n"
        "before = termios.tcgetattr(0)\n"
        "with keys.of_terminal() as pressed:\n"
        "    for seconds in (1000, 1000, 1000, 0.01):\n"
        "        print('ready', flush=True)\n"
        "        print(repr(pressed(seconds)), flush=True)\n"
        "print(termios.tcgetattr(0) == before)"
    )
    own, other = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdin=other, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for text, wanted in ((b"s", "'s'"), (b"\x1b[A", "''"), (b"q", "'q'"), (b"", "''")):
            assert child.stdout.readline() == "ready\n"
            os.write(own, text)
            assert child.stdout.readline() == f"{wanted}\n"
        assert child.stdout.read() == "True\n"
    os.close(own)
    os.close(other)


def test_the_bar_is_as_wide_as_it_is_told() -> None:
    figures = {"live_bytes": 98.0, "dirty_bytes": 1.0, "metadata_bytes": 1.0, "charged_bytes": 100.0}
    snapshot = stats.Snapshot(1, "p", "", "", 0, figures)
    assert 38 <= top.width_of(top.bar(snapshot, 40)) <= 40
    assert top.bar(stats.Snapshot(1, "p", "", "", 0, {}), 40) == ""


def large_snapshot() -> stats.Snapshot:
    figures = dict.fromkeys(stats.PARTS.values(), 123.4 * 2**20)
    figures |= {"charged_bytes": 740.4 * 2**20, "live_blocks": 1234567.0}
    figures |= {"limit_soft_bytes": 512.0 * 2**20, "limit_hard_bytes": 1023.9 * 2**20, "peak_bytes": 1023.9 * 2**20}
    sizes = tuple(stats.SizeClass(bytes=262144 - k, live=1234567, cached=1000) for k in range(20))
    threads = tuple(stats.Thread(4194304 - k, 123456, 262144, 12345678) for k in range(20))
    return stats.Snapshot(4194304, "server", "0.1.0", "hardened", 1, figures, {"mmap": 123456}, sizes, threads)


@pytest.mark.parametrize(("width", "height"), [(50, 60), (60, 60), (80, 24), (120, 40)])
def test_no_value_is_broken_or_cut_off_on_a_terminal(width: int, height: int) -> None:
    snapshot = large_snapshot()
    history = top.History([snapshot, dataclasses.replace(snapshot, updated_ms=2)])
    out = io.StringIO()
    shown = screen(out, width, height, terminal=True)
    shown.show(top.picture(snapshot, shown, history))
    lines = out.getvalue().splitlines()
    assert "…" not in out.getvalue()
    assert max(map(len, lines)) <= width
    assert len(lines) < height
    for whole in (
        "■ thread caches  123.4 MiB   16.7%",
        "hard limit          1023.9 MiB",
        "262,144  1,234,567  301.4 GiB   1,000",
        "4194304  120.6 KiB  256.0 KiB  12,345,678",
    ):
        assert any(whole in line for line in lines), whole
    assert lines[-1].endswith("0 to 740.4 MiB")


@pytest.mark.parametrize(
    ("content", "expected"),
    [("{}", "expected statistics"), ("nothing", "has no live_bytes"), ('{"figures": 3}', "expected statistics")],
)
def test_a_file_of_something_else_is_one_line(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "other"
    path.write_text(content)
    with pytest.raises(UserError, match=expected) as caught:
        stats.from_file(path)
    assert str(path) in str(caught.value)


def test_wrong_targets_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        stats.from_file(tmp_path / "missing")
    with pytest.raises(UserError, match="has ended, or the number is wrong"):
        stats.from_process(999999999)


def test_the_page_of_an_earlier_process_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stats, "PAGES", tmp_path)
    empty: dict[str, object] = {"figures": {}, "system_calls": {}, "classes": [], "threads": []}

    def write(updated_ms: int) -> None:
        named = {"freestone": "0", "build": "fast", "pid": os.getpid(), "program": "python3", "time_ms": updated_ms}
        body = json.dumps({**named, **empty}).encode()
        page = stats.HEADER.pack(stats.MAGIC, 2, len(body), updated_ms).ljust(64, b"\0") + body
        (tmp_path / f"freestone-{os.getpid()}").write_bytes(page)

    now = int(time.monotonic() * 1000)
    write(now)
    assert stats.from_process(os.getpid()).updated_ms == now
    write(1)  # a millisecond after the machine's start
    with pytest.raises(UserError, match="shows no live page"):
        stats.from_process(os.getpid())


def test_a_page_that_is_being_written_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stats, "PAGES", tmp_path)
    monkeypatch.setattr(stats, "ATTEMPTS", 3)
    body = json.dumps({"freestone": "0"}).encode()
    page = tmp_path / "freestone-7"
    page.write_bytes(stats.HEADER.pack(stats.MAGIC, 3, len(body), 0).ljust(64, b"\0") + body)
    with pytest.raises(UserError, match="never stood still"):
        stats.from_process(7)
    page.write_bytes(b"something else" * 10)
    with pytest.raises(UserError, match="expected a live page"):
        stats.from_process(7)


def test_top_gives_the_terminal_back_as_it_was(running: subprocess.Popen[bytes]) -> None:
    out = io.StringIO()

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read = partial(stats.from_process, running.pid)
        top.watch(screen(out, terminal=True), running.pid, read, 0.1, None, sleep=interrupted)
    assert out.getvalue().startswith("\x1b[?1049h\x1b[?25l")
    assert out.getvalue().endswith("\x1b[?25h\x1b[?1049l")


def test_the_commands_as_typed(
    running: subprocess.Popen[bytes], program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_to_file(program, tmp_path / "s.json")
    for arguments in (["stats", str(running.pid)], ["stats", str(tmp_path / "s.json")], ["stats"]):
        assert cli.run(arguments) == 0
        assert "rounds" in capsys.readouterr().out
    assert cli.run(["top", str(running.pid), "--count", "1"]) == 0
    assert "thread caches" in capsys.readouterr().out


def test_bytes_are_written_for_people() -> None:
    shown = ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 TiB"]
    assert [stats.bytes_text(n) for n in (0, 1023, 1536, 5 << 20, 3 << 40)] == shown
