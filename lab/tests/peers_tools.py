"""The controls and a small program to run under them, built once per test session."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from freestone_lab.core import paths
from freestone_lab.core.result import Peer
from freestone_lab.peers import discover

# The least that an allocator exports, by glibc's own.
FORWARDING = """
#include <stddef.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t a, size_t b) { return __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
"""

SUBJECT = r"""
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static long resident(void) { /* now, in KiB */
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
  if (f) fclose(f);
  return pages * 4;
}

int main(int argc, char **argv) {
  static char buffer[4096];
  setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  const char *what = argv[1];
  long n = argc > 2 ? atol(argv[2]) : 1000;
  if (!strcmp(what, "pairs")) {
    for (long i = 0; i < n; ++i) { char *volatile p = malloc(64); if (p) *p = 1; free(p); }
    puts("done");
  } else if (!strcmp(what, "growth")) { /* KiB that n freed blocks of 1000 bytes leave behind */
    for (long i = 0; i < 100; ++i) { char *volatile p = malloc(1000); memset(p, 1, 1000); free(p); }
    long before = resident();
    for (long i = 0; i < n; ++i) { char *volatile p = malloc(1000); memset(p, 1, 1000); free(p); }
    printf("%ld\n", resident() - before);
  } else if (!strcmp(what, "in-use")) { /* bytes in use that n freed blocks of 1000 bytes leave behind */
    size_t before = mallinfo2().uordblks;
    for (long i = 0; i < n; ++i) { char *volatile p = malloc(1000); free(p); }
    printf("%zu\n", mallinfo2().uordblks - before);
  } else if (!strcmp(what, "granted")) { /* how many of n allocations were granted, and errno of the first refused */
    long granted = 0; int error = 0;
    for (long i = 0; i < n; ++i) {
      errno = 0;
      void *volatile p = malloc(32);
      if (p) ++granted; else if (!error) error = errno;
    }
    printf("%ld %d\n", granted, error);
  } else if (!strcmp(what, "damage")) { /* bytes that changed in n live blocks */
    unsigned char **blocks = calloc(n, sizeof *blocks); long damaged = 0;
    for (long i = 0; i < n; ++i) { blocks[i] = malloc(200); memset(blocks[i], 0x5a, 200); }
    for (long i = 0; i < n; ++i) for (int j = 0; j < 200; ++j) damaged += blocks[i][j] != 0x5a;
    printf("%ld\n", damaged);
  }
  return 0;
}
"""


def compiled(target: Path, source: Path | str, *flags: str) -> Path:
    """A program made of a file or a text in C, with calls of malloc that stay; a library where the name ends in .so."""
    text = source.read_text() if isinstance(source, Path) else source
    shared = ["-shared", "-fPIC", "-Wl,--build-id"] if target.suffix == ".so" else []
    command = ["cc", "-O1", "-fno-builtin", "-w", *shared, "-xc", "-", "-xnone", *flags, "-o", str(target)]
    subprocess.run(command, input=text, text=True, check=True)
    return target


def build_library(folder: Path, name: str, source: str) -> Path:
    return compiled(folder / f"lib{name}.so", source)


def build_controls(folder: Path) -> Path:
    """Builds lab/peers/controls alone, as it is on disk now."""
    source = paths.root() / "lab" / "peers" / "controls"
    subprocess.run(["cmake", "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", folder, "-j", "2"], check=True, capture_output=True)
    return folder


def run_under(peer: Peer, *command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """One run of a command under a peer."""
    full = {**os.environ, **discover.preload_environment(peer), **env}
    return subprocess.run(
        [str(part) for part in command], env=full, capture_output=True, text=True, timeout=1200, check=False
    )
