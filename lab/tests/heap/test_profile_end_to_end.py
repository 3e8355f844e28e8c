"""What libfreestone writes is read back by the readers that people have: ours and the real Go pprof."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_tools import CLI

from freestone_lab.core import paths
from freestone_lab.flamegraph.model import Profile, Sample
from freestone_lab.flamegraph.readers import read_profile
from freestone_lab.heap import profiling

SOURCE = r"""
#include <cstdlib>
#include <cstring>
static void* kept[4000];
struct Store {
  __attribute__((noinline)) void* fill(size_t size) {
    void* block = malloc(size);
    memset(block, 1, size);
    asm volatile("" : "+r"(block) : : "memory");
    return block;
  }
};
__attribute__((noinline)) void churn(Store& store) {
  for (int i = 0; i < 4000; ++i) free(store.fill(2000));
}
__attribute__((noinline)) void grow(Store& store) {
  for (void*& block : kept) block = store.fill(1000);
}
int main() {
  Store store;
  grow(store);
  churn(store);
  return kept[0] == nullptr;
}
"""
LIVE, ALLOCATED = 4_000 * 1000, 4_000 * 1000 + 4_000 * 2000


@pytest.fixture(scope="session")
def go_pprof() -> Path:
    """The tool that people read profiles with, installed by the Go client beside the other things that tests fetch."""
    if (found := shutil.which("pprof")) is not None:
        return Path(found)
    if shutil.which("go") is None:
        pytest.skip("no Go here: pprof is installed by `go install`")
    tool = paths.cache_dir() / "go" / "bin" / "pprof"
    if not tool.exists():
        # Not optimised: it takes longer to compile than to run.
        pprof = "github.com/google/pprof@v0.0.0-20261016150608-1facf8f91b50"
        command = ["go", "install", "-gcflags=all=-N -l", "-ldflags=-s -w", pprof]
        done = subprocess.run(command, env={**os.environ, "GOBIN": str(tool.parent)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return tool


@pytest.fixture(scope="module")
def program(compile_to_preload: Callable[[str, str], Path]) -> Path:
    return compile_to_preload("store.cc", SOURCE)


def profiled(program: Path, path: Path, form: str = "pprof") -> Path:
    """One byte between samples: every block is one, so the sums are exact."""
    conf = f"prof:true,prof_sample_bytes:1,prof_format:{form},prof_file:{path}"
    env = {**os.environ, "LD_PRELOAD": str(paths.build_dir() / "libfreestone.so"), "FREESTONE_CONF": conf}
    subprocess.run([str(program)], env=env, check=True)
    return path


def of_program(profile: Profile) -> list[Sample]:
    """The samples that the program's own fill() took."""
    return [s for s in profile.samples if s[0] and s[0][-1].function.startswith("Store::fill")]


def total(profile: Profile, kind: str) -> int:
    index = [name for name, _ in profile.sample_types].index(kind)
    return sum(values[index] for _, values in of_program(profile))


def test_ours_reads_the_sums_and_the_functions(program: Path, tmp_path: Path) -> None:
    profile = profiling.load([profiled(program, tmp_path / "p.pb")])[0]
    assert total(profile, "inuse_space") == LIVE
    assert total(profile, "alloc_space") == ALLOCATED
    assert total(profile, "alloc_objects") == 8000
    callers = {stack[-2].function.split("(")[0] for stack, _ in of_program(profile)}
    assert callers == {"churn", "grow"}


@pytest.mark.parametrize("form", ["pprof", "collapsed", "heap_v2"])
def test_the_viewers_readers_take_every_format(program: Path, tmp_path: Path, form: str) -> None:
    profile = read_profile(profiled(program, tmp_path / form, form))
    kinds = [name for name, _ in profile.sample_types]
    index = kinds.index("inuse_space") if "inuse_space" in kinds else 0
    assert profile.total(index) == pytest.approx(LIVE, rel=0.1)


def test_behind_a_shim_the_program_itself_is_shown_first(program: Path, tmp_path: Path) -> None:
    shim, page = tmp_path / "shim", tmp_path / "heap.html"
    shim.write_text(f"#!/bin/bash\nbash -c 'x=$(sleep 0.2)'\nexec {program} 'two words'\n")
    shim.chmod(0o755)
    command = [*CLI, "profile", "--sample-bytes", "1", "-o", str(page), "--", str(shim)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, largest, *others = done.stderr.splitlines()
    assert re.fullmatch(r"peak_space of \d processes", first), done.stderr
    assert re.fullmatch(r" +\d\.\d MiB  store( two words)? \(process \d+\)", largest), done.stderr
    assert any(re.search(r"KiB  bash -c x=\$\(sleep 0.2\) \(process \d+\)", line) for line in others), done.stderr
    assert any("Store::fill" in line for line in others), done.stderr
    assert largest.endswith(re.findall(r'"label":"([^"]*)"', page.read_text())[0])


@pytest.mark.all
def test_go_pprof_reads_it(program: Path, tmp_path: Path, go_pprof: Path) -> None:
    path = profiled(program, tmp_path / "p.pb")
    for kind, wanted in (("inuse_space", LIVE), ("alloc_space", ALLOCATED), ("alloc_objects", 8000)):
        command = [str(go_pprof), f"-sample_index={kind}", "-unit=B", "-top", str(program), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert f"Type: {kind}" in done.stdout
        row = next(line for line in done.stdout.splitlines() if line.endswith("Store::fill"))
        assert int(re.sub(r"\D", "", row.split()[0])) == wanted, done.stdout
    raw = subprocess.run([str(go_pprof), "-raw", str(path)], capture_output=True, text=True, check=True).stdout
    assert "PeriodType: space bytes" in raw
    assert "inuse_space/bytes[dflt]" in raw
    assert str(program) in raw
