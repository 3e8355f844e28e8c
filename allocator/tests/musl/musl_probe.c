/* A program for musl: every call of the surface, sizes up to mappings of their own, threads that begin and end, forks
 * beside them with handlers that allocate, and what the library says about itself. Prints "done", or what is wrong. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "freestone/freestone.h"

#define EXPECT(condition) \
  do { \
    if (!(condition)) { \
      printf("line %d: not so: %s\n", __LINE__, #condition); \
      exit(1); \
    } \
  } while (0)

enum { kThreads = 4, kRounds = 20, kBlocks = 400 };
int freestone_is_active(void) __attribute__((weak));  /* absent where nothing is preloaded */
int freestone_get_stats(struct freestone_stats*) __attribute__((weak));

static int is_filled(const unsigned char* block, size_t bytes, unsigned char with) {
  for (size_t k = 0; k < bytes; ++k)
    if (block[k] != with) return 0;
  return 1;
}

static void* churn(void* argument) {
  unsigned char* blocks[kBlocks];
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t k = 0; k < kBlocks; ++k) {
      const size_t bytes = k * 37 % 5000 + 1;
      EXPECT((blocks[k] = malloc(bytes)) != NULL);
      memset(blocks[k], (int)k, bytes);
    }
    for (size_t k = 0; k < kBlocks; ++k) {
      const size_t bytes = k * 91 % 90000 + 1, before = k * 37 % 5000 + 1;
      EXPECT((blocks[k] = realloc(blocks[k], bytes)) != NULL);
      EXPECT(is_filled(blocks[k], bytes < before ? bytes : before, (unsigned char)k));
    }
    for (size_t k = 0; k < kBlocks; ++k) free(blocks[k]);
  }
  return argument;
}

static void the_surface_keeps_its_rules(void) {
  void* block = NULL;
  EXPECT(posix_memalign(&block, 64, 100) == 0 && (uintptr_t)block % 64 == 0);
  free(block);
  EXPECT(posix_memalign(&block, 3, 100) == EINVAL);
  for (size_t alignment = 16; alignment <= (1 << 21); alignment *= 2) {
    EXPECT((block = aligned_alloc(alignment, 3 * alignment)) != NULL && (uintptr_t)block % alignment == 0);
    memset(block, 1, 3 * alignment);
    free(block);
  }
  EXPECT((block = memalign(256, 1000)) != NULL && (uintptr_t)block % 256 == 0);
  errno = 5;
  free(block);
  EXPECT(errno == 5);
  EXPECT(malloc(PTRDIFF_MAX) == NULL && errno == ENOMEM);
  EXPECT(calloc(SIZE_MAX / 2, 3) == NULL);
  EXPECT((block = malloc(0)) != NULL);
  free(block);
  for (size_t bytes = 1; bytes <= ((size_t)64 << 20); bytes *= 7) {
    EXPECT((block = calloc(1, bytes)) != NULL && is_filled(block, bytes, 0));
    EXPECT(malloc_usable_size(block) >= bytes);
    memset(block, 255, bytes);
    EXPECT((block = realloc(block, 2 * bytes)) != NULL && is_filled(block, bytes, 255));
    free(block);
  }
}

static int handled = 0;
static void handle(void) {
  ++handled;
  free(malloc(100));
}

static void forks_beside_threads_leave_a_whole_heap(void) {
  pthread_t threads[kThreads];
  for (int k = 0; k < kThreads; ++k) EXPECT(pthread_create(&threads[k], NULL, churn, NULL) == 0);
  for (int k = 0; k < 20; ++k) {
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      churn(NULL);
      _exit(handled == 2 * (k + 1) ? 0 : 3);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
  }
  for (int k = 0; k < kThreads; ++k) EXPECT(pthread_join(threads[k], NULL) == 0);
  EXPECT(handled == 40);
}

static void ended_threads_leave_no_cache(void) {
  struct freestone_stats stats = {.version = FREESTONE_STATS_VERSION};
  for (int k = 0; k < 50; ++k) {
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, churn, NULL) == 0 && pthread_join(thread, NULL) == 0);
  }
  if (freestone_get_stats == NULL || !freestone_is_active()) return;
  EXPECT(freestone_get_stats(&stats) == 0 && stats.threads == 1);
}

int main(int argc, char** argv) {
  const int expects_library = argc > 1 && strcmp(argv[1], "served") == 0;
  EXPECT(!expects_library || (freestone_is_active != NULL && freestone_is_active()));
  EXPECT(pthread_atfork(handle, handle, handle) == 0);
  the_surface_keeps_its_rules();
  churn(NULL);
  forks_beside_threads_leave_a_whole_heap();
  ended_threads_leave_no_cache();
  puts("done");
  return 0;
}
