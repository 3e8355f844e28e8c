"""The controls and a small program to run under them, built once per test session."""

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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define EXPECT(rule) if (!(rule)) return printf("not so: %s\n", #rule), 1
#define REFUSES(call) (errno = 0, (call) == NULL && errno == ENOMEM)

static long resident(void) { /* now, in KiB */
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
  if (f) fclose(f);
  return pages * 4;
}

static int holds(const char *block, size_t n, char value) {
  while (n > 0 && block[n - 1] == value) --n;
  return n == 0;
}

/* What every allocator keeps is expected; what it may choose is printed. */
static int rules(void) {
  size_t huge = PTRDIFF_MAX - 4096, half = (1ul << 32) + 1, least = 4096, n = 1000, next;
  char *volatile p = malloc(n);
  EXPECT(REFUSES(malloc(huge)) && REFUSES(malloc(SIZE_MAX)) && REFUSES(calloc(half, 1ul << 32)));
  EXPECT(REFUSES(reallocarray(NULL, half, 1ul << 32)) && REFUSES(memalign(64, huge)));
  EXPECT(REFUSES(aligned_alloc(64, SIZE_MAX / 64 * 64)));
  EXPECT(REFUSES(realloc(memset(p, 7, n), huge)) && holds(p, n, 7));
  for (; n < 8 << 20; memset(p, 7, n = next)) EXPECT(holds(p = realloc(p, next = n + n / 2), n, 7));
  for (; n > 1; n /= 2) EXPECT(holds(p = realloc(p, n / 2), n / 2, 7));
  for (size_t aligned = sizeof p; aligned <= 1 << 20; aligned *= 2)
    for (n = 1; n < 1 << 19; n *= 7) {
      EXPECT(posix_memalign((void **)&p, aligned, n) == 0 && (uintptr_t)p % aligned == 0);
      free(memset(p, 1, n));
    }
  for (n = 1; n < 4 << 20; n *= 2)
    for (int round = 0; round < 20; ++round) {
      free(memset(malloc(n), 1, n));
      EXPECT(holds(p = calloc(n, 1), n, 0));
      free(memset(p, 1, n));
    }
  errno = 4242;
  free(malloc(1000)), free(malloc(3 << 20));
  EXPECT(errno == 4242);
  for (n = 1; n <= 2000; ++n) while ((uintptr_t)(p = malloc(n)) % least) least /= 2;
  printf("sizes %zu %zu, ", malloc_usable_size(malloc(1)), malloc_usable_size(malloc(100)));
  printf("aligned %zu, zero %d %d, ", least, malloc(0) == malloc(0), realloc(malloc(1), 0) == NULL);
  printf("48 %d, pvalloc %zu\n", aligned_alloc(48, 96) == NULL, malloc_usable_size(pvalloc(10)));
  return 0;
}

int main(int argc, char **argv) {
  static char buffer[4096];
  setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
  const char *what = argv[1];
  long n = argc > 2 ? atol(argv[2]) : 1000;
  if (!strcmp(what, "rules")) return rules();
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
    return subprocess.run([str(part) for part in command], env=full, capture_output=True, text=True, timeout=1200)
