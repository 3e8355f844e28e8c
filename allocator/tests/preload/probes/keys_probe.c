/* Takes all of the C library's keys while there is one thread, prints how many, and goes on with threads that allocate.
 * With the argument "late" a thread has allocated and ended before. Prints the threads' caches that are left, where the
 * library tells. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "freestone/freestone.h"

extern int freestone_get_stats(struct freestone_stats* stats) __attribute__((weak));

static void* use(void* each) {
  void* blocks[200];
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < 200; ++i) memset(blocks[i] = malloc(i * (size_t)each + 1), 1, i);
    for (size_t i = 0; i < 200; ++i) free(blocks[i]);
  }
  return NULL;
}

static void run_threads(int count) {
  pthread_t threads[64];
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, use, (void*)(size_t)(i + 1));
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}

int main(int argc, char** argv) {
  static pthread_key_t keys[PTHREAD_KEYS_MAX];
  int taken = 0;
  use((void*)1);
  if (argc > 1 && strcmp(argv[1], "late") == 0) run_threads(1);
  while (taken < PTHREAD_KEYS_MAX && pthread_key_create(&keys[taken], NULL) == 0) ++taken;
  run_threads(64);
  printf("keys %d\n", taken);
  struct freestone_stats stats = {.version = FREESTONE_STATS_VERSION};
  if (freestone_get_stats != NULL && freestone_get_stats(&stats) == 0) printf("caches %u\n", stats.threads);
  return 0;
}
