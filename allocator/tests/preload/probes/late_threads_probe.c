/* A program that is not linked with libpthread and loads it late: what its threads held comes back when they end.
   Before glibc 2.34 libpthread is a library of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "freestone/freestone.h"

enum { kThreads = 100, kBlocks = 400, kSkipped = 77 };

typedef int (*create_type)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
typedef int (*join_type)(pthread_t, void**);

static void* work(void* unused) {
  void* blocks[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(i * 8 + 1);
    if (blocks[i] == NULL) exit(3);
    memset(blocks[i], (int)i, i * 8 + 1);
  }
  for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
  return unused;
}

int main(void) {
  int (*const statistics)(struct freestone_stats*) =
      (int (*)(struct freestone_stats*))dlsym(RTLD_DEFAULT, "freestone_get_stats");
  if (statistics == NULL) return kSkipped;
  work(NULL);
  void* const library = dlopen("libpthread.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return kSkipped;
  const create_type create = (create_type)dlsym(library, "pthread_create");
  const join_type join = (join_type)dlsym(library, "pthread_join");
  if (create == NULL || join == NULL) return 4;
  for (int i = 0; i < kThreads; ++i) {
    pthread_t thread;
    if (create(&thread, NULL, work, NULL) != 0 || join(thread, NULL) != 0) return 5;
  }
  struct freestone_stats now;
  now.version = FREESTONE_STATS_VERSION;
  if (statistics(&now) != 0) return 6;
  printf("%u caches after %d threads have ended\n", now.threads, kThreads);
  return now.threads > 2 ? 1 : 0;
}
