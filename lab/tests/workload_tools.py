"""What the workload tests share: the built program, small parameters, and allocators with one known fault."""

import fcntl
import json
import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from peers_tools import compiled

from freestone_lab.core import paths
from freestone_lab.workloads import suites

WORKLOADS = sorted({run.workload for run in suites.suite("full") + suites.HARDENING})

# Parameters with which a workload runs in a fraction of a second. One without any runs as its first suite has it.
SMALL: dict[str, list[str]] = {
    "throughput": ["--size=64,4096", "--rounds=5", "--blocks=200"],
    "burst": ["--size=64", "--rounds=5", "--blocks=200", "--threads=2"],
    "pair": ["--size=64", "--rounds=20000"],
    "latency": ["--law=mixed", "--samples=20000", "--live=100"],
    "overhead": ["--top=64K", "--rss-top=64", "--budget-mib=1"],
    "rss": ["--steps=20000", "--blocks=100", "--idle=10", "--sample-ms=1", "--threads=2"],
    "lifetimes": ["--slots=4096", "--steps=64000", "--threads=2"],
    "ring": ["--steps=6000", "--threads=2", "--sample-every=2"],
    "batch": ["--rounds=200", "--threads=2"],
    "micro": ["--rounds=1000", "--live=1000", "--threads=2"],
    "larson": ["--steps=4000", "--generations=4", "--blocks=200"],
    "cfrac-like": ["--steps=50000"],
    "cross": ["--blocks=20000", "--threads=3"],
    "churn": ["--waves=8", "--threads=3", "--blocks=50"],
    "realloc": ["--rounds=4", "--top=64K", "--threads=2"],
    "aligned": ["--steps=3000", "--live=100", "--touch=full"],
    "large": ["--steps=200", "--live=4", "--low=256K", "--high=512K"],
    "phases": ["--peak-mib=1", "--idle=10"],
    "startup": ["--runs=3"],
    "fragmentation": ["--live-mib=1", "--phases=4"],
    "false-sharing": ["--rounds=200", "--writes=100"],
    "calls": ["--rounds=2"],
    "grow-shrink": ["--mib=1", "--cycles=3", "--threads=2"],
    "drift": ["--live-mib=1", "--phases=2"],
    "idle-threads": ["--threads=5", "--kib=64", "--idle=1"],
    "server": ["--requests=2000", "--threads=3", "--entries=50"],
    "reuse": ["--rounds=2", "--cap=100", "--rest=1"],
}

# glibc's own functions behind ours, with one fault chosen when it is compiled.
FAULTY = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
#ifdef MALLOC_TICKS
#include <x86intrin.h>
#endif
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
static atomic_long mallocs, frees;
static void wait_ns(long ns) {
  struct timespec a, b;
  if (ns == 0) return;
  clock_gettime(CLOCK_MONOTONIC, &a);
  do clock_gettime(CLOCK_MONOTONIC, &b);
  while ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < ns);
}
static int refused(void) {
  long n = atomic_fetch_add(&mallocs, 1);
#ifdef CRASH_AFTER
  if (n >= CRASH_AFTER) raise(SIGSEGV);
#endif
#ifdef NULL_AFTER
  if (n >= NULL_AFTER) { errno = ENOMEM; return 1; }
#endif
  (void)n;
  wait_ns(MALLOC_NS);
#ifdef MALLOC_TICKS
  for (unsigned long long begin = __rdtsc(); __rdtsc() - begin < MALLOC_TICKS;) {}
#endif
  return 0;
}
/* A malloc that is next to nothing: blocks of one size, one after the other, and never taken back. */
#ifdef TRIVIAL
static _Alignas(4096) char pool[64 << 20];
static char *next = pool;
void *malloc(size_t n) { char *p = next; next += n <= 64 ? 64 : (n + 63) & -(size_t)64; return p; }
void free(void *p) { (void)p; }
#else
/* The block made before this one loses a bit of its first byte, if it is still live. */
static unsigned char *last;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *spoil(void *p, size_t n) {
#ifdef CORRUPT
  pthread_mutex_lock(&lock);
  if (last) *last ^= 4;
  last = n >= 8 ? p : 0;
  pthread_mutex_unlock(&lock);
#endif
  (void)n;
  return p;
}
static void spare(void *p) {
#ifdef CORRUPT
  pthread_mutex_lock(&lock);
  if (p == last) last = 0;
  pthread_mutex_unlock(&lock);
#endif
  (void)p;
}
/* STRICT: every call that a standard lets an allocator refuse is refused. */
void *malloc(size_t n) { return refused() || (STRICT && !n) ? 0 : spoil(__libc_malloc(n), n); }
void *calloc(size_t a, size_t b) { return refused() || (STRICT && !(a && b)) ? 0 : __libc_calloc(a, b); }
/* A realloc of a block waits like the allocation and the free that workloads count it as. */
void *realloc(void *p, size_t n) {
  spare(p);
  if (refused() || (STRICT && !n)) return 0;
  if (p) wait_ns(FREE_NS);
  return __libc_realloc(p, n);
}
static void *aligned(size_t a, size_t n) {
  if (refused() || (STRICT && (!n || a == 0 || (a & (a - 1))))) return 0;
#ifdef MISALIGN
  return (char *)__libc_memalign(a, n + a) + 8;
#else
  return __libc_memalign(a, n);
#endif
}
void *aligned_alloc(size_t a, size_t n) { return STRICT && a && n % a ? 0 : aligned(a, n); }
void *memalign(size_t a, size_t n) { return aligned(a, n); }
int posix_memalign(void **out, size_t a, size_t n) {
  if (STRICT && a % sizeof(void *)) return EINVAL;
  return (*out = aligned(a, n)) ? 0 : ENOMEM;
}
void free(void *p) {
  if (!p) return;
  atomic_fetch_add(&frees, 1);
  wait_ns(FREE_NS);
  spare(p);
#ifdef MISALIGN
  return;
#endif
  __libc_free(p);
}
#endif
#if STRICT
void free_sized(void *p, size_t n) { (void)n, free(p); }
void free_aligned_sized(void *p, size_t a, size_t n) {
  if (n % a) abort();  /* no block has that size */
  free(p);
}
#endif
#ifdef COUNT
__attribute__((destructor)) static void tell(void) {
  char text[64];
  int n = snprintf(text, sizeof text, "%ld %ld\n", atomic_load(&mallocs), atomic_load(&frees));
  int fd = open(getenv("COUNT_TO"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || write(fd, text, n) != n) _exit(1);
}
#endif
"""


@dataclass(frozen=True)
class Outcome:
    """One run: its exit status, its JSON when it printed one, and what it said on stderr."""

    status: int
    json: dict[str, Any]
    stderr: str

    def value(self, figure: str) -> float:
        return float(self.json["figures"][figure]["value"])


@cache
def program() -> Path:
    """The release build's program when it is as new as the sources, else one built in a tree that is kept."""
    sources = [p for p in (paths.root() / "lab" / "workloads").rglob("*") if p.is_file()]
    released = paths.build_dir() / "freestone-workload"
    if released.exists() and all(p.stat().st_mtime <= released.stat().st_mtime for p in sources):
        return released
    build = paths.cache_dir() / "workloads"
    build.mkdir(parents=True, exist_ok=True)
    with (build / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        source = paths.root() / "lab" / "workloads"
        for command in (
            ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"],
            ["cmake", "--build", str(build), "-j2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return build / "freestone-workload"


def library(folder: Path, **faults: int) -> Path:
    """A library with the given faults: NULL_AFTER, CRASH_AFTER, CORRUPT, MISALIGN, COUNT, STRICT, MALLOC_NS, ..."""
    name = "-".join(f"{k}{v}" for k, v in sorted(faults.items())) or "plain"
    out = folder / f"{name}.so"
    if not out.exists():
        # The dead store elimination of a compiler that knows what free does would undo the corruption.
        defined = {"MALLOC_NS": 0, "FREE_NS": 0, "STRICT": 0} | faults
        compiled(out, FAULTY, *(f"-D{k}={v}" for k, v in defined.items()))
    return out


def run(*words: str, preload: Path | str | None = None, **env: str) -> Outcome:
    """Runs the program; the last line of stdout is read as JSON when there is one."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_")} | env
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    done = subprocess.run([str(program()), *words], capture_output=True, text=True, env=environment, timeout=1200)
    lines = done.stdout.strip().splitlines()
    found = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return Outcome(done.returncode, found, done.stderr)


def small(workload: str, *more: str, preload: Path | str | None = None, **env: str) -> Outcome:
    """Runs a workload with its small parameters; `more` wins over them."""
    words = SMALL[workload] if workload in SMALL else suites.suite(workload)[0].arguments()[1:]
    return run(workload, "--idle-ms=0", *words, *more, preload=preload, **env)


def described() -> dict[str, dict[str, Any]]:
    """The workloads as `list --json` describes them, by name."""
    return {w["name"]: w for w in run("list", "--json").json["workloads"]}
