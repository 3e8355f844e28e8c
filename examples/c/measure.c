/* What a C program gets beyond malloc: its own options, figures about the heap, memory given back, a limit. */
#include <errno.h>
#include <freestone/freestone.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of this program; FREESTONE_CONF in the environment is read after them. */
const char *freestone_conf = "dirty_decay_ms:500";

static struct freestone_stats heap(void) {
  struct freestone_stats stats = {.version = FREESTONE_STATS_VERSION};
  freestone_get_stats(&stats);
  return stats;
}

static void print(const char *when) {
  const struct freestone_stats now = heap();
  printf("%-14s live %6.1f MiB   resident %6.1f MiB\n", when, (double)now.live_bytes / 1048576,
         (double)now.resident_bytes / 1048576);
}

int main(void) {
  enum { blocks = 100000 };
  static char *held[blocks];
  printf("Freestone %s, %s\n", freestone_version(), freestone_is_active() ? "active" : "switched off");
  print("at start");
  for (int i = 0; i < blocks; ++i) {
    held[i] = malloc(1000);
    if (held[i] == NULL) return EXIT_FAILURE;
    memset(held[i], 1, 1000);
  }
  print("all allocated");
  for (int i = 0; i < blocks; ++i) free(held[i]);
  freestone_trim(0);
  print("after a trim");

  /* From here on the heap may hold 32 MiB more than it does now. */
  struct freestone_limits limits = {.version = FREESTONE_LIMITS_VERSION,
                                    .hard_bytes = heap().charged_bytes + (32u << 20)};
  freestone_set_limits(&limits);
  void *volatile too_much = malloc(64u << 20); /* volatile: a compiler may do without a block that is never used */
  const int why = errno;
  printf("64 MiB against a limit of 32 MiB: %s\n", too_much == NULL ? strerror(why) : "allocated");
  free(too_much);
  return too_much == NULL ? EXIT_SUCCESS : EXIT_FAILURE;
}
