/* Holds a known number of live bytes and prints what the statistics calls say before and after, as JSON on standard
   output; malloc_stats writes to standard error as it does in glibc, malloc_info to the file named by argv[1]. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 60000, kMapped = 64 << 20 };

static int stats_returned;

/* With a cancellation pending, which malloc_stats shall neither act on nor lose. */
static void* print_stats(void* nothing) {
  pthread_cancel(pthread_self());
  malloc_stats();
  stats_returned = 1;
  pthread_testcancel();
  return nothing;
}

static void print_counters(const char* when) {
  const struct mallinfo2 now = mallinfo2();
  printf("\"%s\": {\"arena\": %zu, \"uordblks\": %zu, \"fordblks\": %zu, \"hblkhd\": %zu}, ", when, now.arena,
         now.uordblks, now.fordblks, now.hblkhd);
}

int main(int argc, char** argv) {
  static char* blocks[kBlocks];
  size_t requested = 0;
  size_t usable = 0;
  setvbuf(stdout, NULL, _IONBF, 0);
  free(malloc(1));
  free(malloc(kMapped));
  printf("{");
  print_counters("before");
  for (int i = 0; i < kBlocks; ++i) {
    const size_t size = i % 1000 == 0 ? 300000 : i % 100 == 0 ? 40000 : (size_t)(16 + i % 37 * 24);
    blocks[i] = malloc(size);
    if (blocks[i] == NULL) return 1;
    memset(blocks[i], 1, size);
    requested += size;
    usable += malloc_usable_size(blocks[i]);
  }
  print_counters("held");
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* 32-bit counters are what is tested */
  const struct mallinfo old = mallinfo();
  printf("\"mallinfo_uordblks\": %d, \"requested\": %zu, \"usable\": %zu, ", old.uordblks, requested, usable);
  pthread_t thread;
  void* ended;
  if (pthread_create(&thread, NULL, print_stats, NULL) != 0 || pthread_join(thread, &ended) != 0) return 1;
  printf("\"stats_returned\": %d, \"cancelled_later\": %d, ", stats_returned, ended == PTHREAD_CANCELED);
  FILE* file = argc > 1 ? fopen(argv[1], "w") : NULL;
  const int status = file != NULL ? malloc_info(0, file) : -1;
  printf("\"malloc_info\": %d, \"malloc_info_bad_option\": %d, ", status, malloc_info(1, stdout));
  if (file != NULL) fclose(file);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  print_counters("freed");
  printf("\"mallopt_trim\": %d, \"mallopt_unknown\": %d, ", mallopt(M_TRIM_THRESHOLD, 1 << 20), mallopt(-4711, 1));
  printf("\"trim\": %d}\n", malloc_trim(0));
  return 0;
}
