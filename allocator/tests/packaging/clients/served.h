// What the client programs prove: that the program's own malloc, and the C library's calls of it, reach Freestone.
#ifndef FREESTONE_TESTS_SERVED_H
#define FREESTONE_TESTS_SERVED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <freestone/freestone.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t live_bytes(void) {
  struct freestone_stats stats;
  memset(&stats, 0, sizeof stats);
  stats.version = FREESTONE_STATS_VERSION;
  if (freestone_get_stats(&stats) != 0) {
    puts("error: freestone_get_stats");
    exit(1);
  }
  return stats.live_bytes;
}

static inline void require_growth(uint64_t before, uint64_t bytes, const char *by) {
  const uint64_t grown = live_bytes() - before;
  if (grown >= bytes && grown < bytes * 2) return;
  printf("error: %llu bytes by %s, but the heap grew by %llu\n", (unsigned long long)bytes, by,
         (unsigned long long)grown);
  exit(1);
}

// The file that defines what the program finds under that name.
static inline void print_owner(const char *name) {
  Dl_info info;
  void *address = dlsym(RTLD_DEFAULT, name);
  printf("%s=%s\n", name, address != NULL && dladdr(address, &info) != 0 ? info.dli_fname : "nothing");
}

static inline void prove_c_calls(void) {
  static char text[100];
  static void *blocks[1000];
  memset(text, 'x', sizeof text - 1);
  uint64_t before = live_bytes();
  for (int i = 0; i < 1000; ++i) blocks[i] = malloc(100);
  require_growth(before, 100000, "malloc");
  for (int i = 0; i < 1000; ++i) free(blocks[i]);
  before = live_bytes();
  for (int i = 0; i < 1000; ++i) blocks[i] = strdup(text);  // allocated inside libc
  require_growth(before, 100000, "strdup");
  for (int i = 0; i < 1000; ++i) free(blocks[i]);
  if (freestone_is_active() != 1) {
    puts("error: not active");
    exit(1);
  }
  printf("version=%s\n", freestone_version());
  print_owner("malloc");
}

#endif
