"""The figures of a process that sleeps since its start are those that it would write itself."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from freestone_lab import cli
from freestone_lab.core import paths
from freestone_lab.heap import names, snapshot
from freestone_lab.heap.attach import Process

Compile = Callable[[str, str], Path]
# Caches, slabs, runs, own mappings, a second thread, an ended one.
IDLE = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[20000];
static void *turn(void *stays) {
  void *own[300];
  for (int i = 0; i < 300; ++i) own[i] = malloc(40 + i * 11);
  for (int i = 0; i < 150; ++i) free(own[i]);
  if (write(1, "up\n", 3) == 3 && stays != NULL) pause();
  return NULL;
}
int main(void) {
  for (int i = 0; i < 20000; ++i) memset(kept[i] = malloc(16 + i * 7 % 60000), 1, 16);
  for (int i = 0; i < 20000; i += 3) free(kept[i]);
  kept[0] = malloc(200 << 20), kept[3] = malloc(3 << 20), free(malloc(5 << 20));
  pthread_t thread;
  pthread_create(&thread, NULL, turn, NULL);
  pthread_join(thread, NULL);
  pthread_create(&thread, NULL, turn, kept);
  for (;;) pause();
}
"""
OF_ITS_OWN_REPORT = {"resident_bytes", "peak_resident_bytes"}


@pytest.mark.parametrize("conf", ["", ",prof:true", ",dirty_decay_ms:0"])
@pytest.mark.parametrize("library", ["libfreestone.so", "libfreestone-hardened.so"])
def test_an_idle_process_is_read_and_not_asked(
    library: str, conf: str, compile_to_preload: Compile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, written = compile_to_preload("a_long_name_of_an_idle_program.c", IDLE), tmp_path / "s.json"
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / library)}
    env["FREESTONE_CONF"] = f"stats_signal:10,stats_file:{written}{conf}"
    with subprocess.Popen([program, "word"], env=env, stdout=subprocess.PIPE, bufsize=0) as child:
        try:
            assert child.stdout is not None and child.stdout.read(3) + child.stdout.read(3) == b"up\nup\n"
            while Path(f"/proc/{child.pid}/syscall").read_text().split()[0] == "running":
                time.sleep(0.01)
            for _ in range(3):  # a look changes nothing
                read = Process(child.pid).statistics()
            assert cli.run(["stats", str(child.pid)]) == 0
            child.send_signal(signal.SIGUSR1)
            while not written.exists():
                time.sleep(0.01)
            said = snapshot.from_file(written)
        finally:
            child.kill()
    assert read.figures.keys() == said.figures.keys()
    differ = {x: (value, said.figures[x]) for x, value in read.figures.items() if value != said.figures[x]}
    assert differ.keys() <= OF_ITS_OWN_REPORT, differ
    same = ("classes", "threads", "version", "build")
    assert [getattr(read, name) for name in same] == [getattr(said, name) for name in same]
    assert len(read.threads) == 2 and len(read.classes) > 50
    assert read.system_calls["mmap"] == said.system_calls["mmap"] > 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"a_long_name_of_an_idle_program word process {child.pid}"), "by its name as typed"
    assert snapshot.bytes_text(read.figure("charged_bytes")) in shown


def test_a_process_has_one_name(tmp_path: Path) -> None:
    """A script has its own, not that of what reads it; a title is as the process wrote it."""
    script = tmp_path / "serve_this_for_a_long_time"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o755)
    for command, line, program in (
        ([str(script), "a", "b"], "serve_this_for_a_long_time a b", "serve_this_for_a_long_time"),
        (["/bin/sh", str(script)], f"sh {script}", "sh"),
        (["bash", "-c", "exec -a 'nginx: master process' cat"], "nginx: master process", "nginx"),
    ):
        with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
            try:
                while names.command_line(child.pid) != line:
                    assert child.poll() is None, (names.command_line(child.pid), line)
                    time.sleep(0.01)
            finally:
                child.kill()
        assert names.program(line) == program
