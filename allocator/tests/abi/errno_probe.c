// Every call that allocates, with every size and alignment that a rule could part, when there is memory and when there
// is none. A line for each: the call, whether it gave a block, what else it returned, and errno, which was 77 before.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static const size_t kSizes[] = {
    0,        1,         100,        5000,            40000,        200000,
    3u << 20, 40u << 20, 800u << 20, (size_t)1 << 47, SIZE_MAX / 2, SIZE_MAX / 2 - 100,
    SIZE_MAX / 2 + 1, SIZE_MAX - 5000, SIZE_MAX,
};
static const size_t kAlignments[] = {0,  1,  2,  3,    4,     8,       12,           16,
                                     24, 32, 64, 4096, 65536, 1 << 20, SIZE_MAX / 2 + 1, SIZE_MAX};
enum { kSizeCount = sizeof kSizes / sizeof kSizes[0], kAlignmentCount = sizeof kAlignments / sizeof kAlignments[0] };

static const char* situation;

static void tell(const char* call, size_t first, size_t second, void* block, int status) {
  const int error = errno;
  printf("%s %s(%zu, %zu): %s %d, errno %d\n", situation, call, first, second, block != NULL ? "block" : "null", status,
         error);
  errno = 77;
  free(block);
  if (errno != 77) printf("%s free after %s(%zu, %zu): errno %d\n", situation, call, first, second, errno);
  errno = 77;
}

static void ask_all(void) {
  errno = 77;
  for (int s = 0; s < kSizeCount; ++s) {
    const size_t size = kSizes[s];
    tell("malloc", size, 0, malloc(size), 0);
    tell("valloc", size, 0, valloc(size), 0);
    tell("pvalloc", size, 0, pvalloc(size), 0);
    tell("realloc of null", size, 0, realloc(NULL, size), 0);
    for (int c = 0; c < 3; ++c) {
      const size_t counts[] = {0, 1, 3};
      tell("calloc", counts[c], size, calloc(counts[c], size), 0);
      tell("calloc", size, counts[c], calloc(size, counts[c]), 0);
      tell("reallocarray of null", counts[c], size, reallocarray(NULL, counts[c], size), 0);
    }
    if (size != 0) {
      void* const block = malloc(100);
      errno = 77;
      void* const moved = realloc(block, size);
      tell("realloc", size, 0, moved, 0);
      if (moved == NULL) free(block);
    }
    for (int a = 0; a < kAlignmentCount; ++a) {
      const size_t alignment = kAlignments[a];
      void* block = NULL;
      const int status = posix_memalign(&block, alignment, size);
      tell("posix_memalign", alignment, size, block, status);
      tell("memalign", alignment, size, memalign(alignment, size), 0);
      tell("aligned_alloc", alignment, size, aligned_alloc(alignment, size), 0);
    }
  }
  errno = 77;
  printf("%s usable size of null: %zu, errno %d\n", situation, malloc_usable_size(NULL), errno);
  free(NULL);
  printf("%s free of null: errno %d\n", situation, errno);
}

int main(void) {
  situation = "with memory:";
  ask_all();
  situation = "without:";
  // Far from the largest that fits (120 MiB) and from the next (800), for what an allocator keeps of addresses varies.
  const struct rlimit limit = {460u << 20, 460u << 20};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 77;
  ask_all();
  return 0;
}
