/* Uses every part of the heap: sizes of all kinds in threads, growth, purges, children, what the C library says about
   its heap. Says "done", or what is wrong.
     calls_probe                        all of it; each phase begins with a call of getppid
     calls_probe FILTER exec PROGRAM [WORD...]
     calls_probe FILTER [PART...]       under a filter of system calls, a file of sock_filter, from the start of main
                                        on: no children; threads only with the part "threads". "warm": the heap is used
                                        before; "forbidden": makes a call that no filter names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kSlots = 300, kThreads = 4, kSteps = 2000 };

static int wrong(const char* what) {
  fprintf(stderr, "wrong: %s\n", what);
  _exit(1);
}

static uint64_t next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static size_t draw(uint64_t* state) {
  const uint64_t random = next(state);
  switch (random % 50) {
    case 0: return 1 + (random >> 8) % 3000000;
    case 1: return 1 + (random >> 8) % 300000;
    case 2: return 20000 + (random >> 8) % 2000;
    default: return 1 + (random >> 8) % 2000;
  }
}

static void* use_heap(void* argument) {
  static _Thread_local unsigned char* blocks[kSlots];
  static _Thread_local size_t sizes[kSlots];
  uint64_t state = (uintptr_t)argument * 7919 + 1;
  for (int step = 0; step < kSteps; ++step) {
    const size_t k = next(&state) % kSlots;
    if (blocks[k] != NULL && (blocks[k][0] != (unsigned char)k || blocks[k][sizes[k] - 1] != (unsigned char)k))
      wrong("contents");
    const size_t bytes = draw(&state);
    if (step % 7 == 0) {
      blocks[k] = realloc(blocks[k], bytes);
    } else {
      free(blocks[k]);
      blocks[k] = step % 5 == 0 ? calloc(1, bytes) : step % 11 == 0 ? aligned_alloc(4096, bytes) : malloc(bytes);
      if (step % 5 == 0 && (blocks[k][bytes / 2] != 0 || blocks[k][bytes - 1] != 0)) wrong("calloc");
    }
    if (blocks[k] == NULL) wrong("null");
    sizes[k] = bytes;
    blocks[k][0] = blocks[k][bytes - 1] = (unsigned char)k;
    if (step % 1000 == 0) malloc_trim(0);
  }
  for (size_t k = 0; k < kSlots; ++k) {
    free(blocks[k]);
    blocks[k] = NULL;
  }
  return NULL;
}

static void use_threads(void) {
  pthread_t threads[kThreads];
  for (uintptr_t t = 0; t < kThreads; ++t)
    if (pthread_create(&threads[t], NULL, use_heap, (void*)(t + 1)) != 0) wrong("pthread_create");
  for (int t = 0; t < kThreads; ++t) pthread_join(threads[t], NULL);
}

static int has_part(int count, char** words, const char* part) {
  for (int k = 2; k < count; ++k)
    if (strcmp(words[k], part) == 0) return 1;
  return 0;
}

static void confine(const char* path) {
  static struct sock_filter rules[4096];
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = read(file, rules, sizeof rules);
  close(file);
  const struct sock_fprog program = {(unsigned short)(bytes / (ssize_t)sizeof *rules), rules};
  if (bytes <= 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    wrong("the filter");
}

static void use_big_blocks(void) {
  enum { kBig = 6 };
  unsigned char* blocks[kBig];
  for (size_t k = 0; k < kBig; ++k) {
    const size_t bytes = (k + 1) * 6100000;
    blocks[k] = k % 3 == 0 ? calloc(bytes, 1) : malloc(bytes);
    if (blocks[k] == NULL) wrong("no big block");
    memset(blocks[k], (int)k, bytes);
  }
  for (size_t k = 0; k < kBig; ++k) {
    blocks[k] = realloc(blocks[k], (k + 1) * (k % 2 == 1 ? 9000000 : 2000000));
    if (blocks[k] == NULL || blocks[k][100] != k) wrong("a big block that realloc moved");
  }
  for (size_t k = 0; k < kBig; ++k) free(blocks[k]);
}

/* Many blocks at once, so that the heap grows, purges pages inside slabs, and purges all. */
static void grow_and_shrink(void) {
  enum { kBlocks = 20000 };
  static char* blocks[kBlocks];
  for (int round = 0; round < 2; ++round) {
    for (size_t k = 0; k < kBlocks; ++k) {
      const size_t bytes = k % 100 == 0 ? 20000 : 1 + k * 31 % 3000;
      blocks[k] = malloc(bytes);
      if (blocks[k] == NULL) wrong("no growth");
      blocks[k][0] = blocks[k][bytes - 1] = 1;
    }
    for (size_t k = 0; k < kBlocks; k += round + 1) {
      free(blocks[k]);
      blocks[k] = NULL;
    }
    malloc_trim(0);
    for (size_t k = 0; k < kBlocks; ++k) free(blocks[k]);
  }
  malloc_trim(0);
  if (mallinfo2().keepcost > (size_t)2 << 20) wrong("memory that does not go back");
}

int main(int count, char** words) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  FILE* nowhere = fopen("/dev/null", "w");
  static char buffer[1 << 16];
  if (nowhere == NULL || setvbuf(nowhere, buffer, _IOFBF, sizeof buffer) != 0) wrong("/dev/null");
  size_t live = 0, live_bytes = sizeof live;
  int (*control)(const char*, void*, size_t*, void*, size_t) =
      (int (*)(const char*, void*, size_t*, void*, size_t))dlsym(RTLD_DEFAULT, "mallctl");
  if (has_part(count, words, "warm")) {
    use_heap((void*)9);
    grow_and_shrink();
    use_big_blocks();
    use_threads();
  }
  const int confined = count > 1;
  if (confined) confine(words[1]);
  if (count > 3 && strcmp(words[2], "exec") == 0) return execv(words[3], words + 3);
  if (has_part(count, words, "forbidden")) syscall(SYS_reboot, 0, 0, 0, 0);
  if (!confined) getppid();
  use_heap((void*)9);
  grow_and_shrink();
  use_big_blocks();
  if (!confined) getppid();
  if (!confined || has_part(count, words, "threads")) use_threads();
  if (!confined) getppid();
  if (malloc_info(0, nowhere) != 0 || fflush(nowhere) != 0) wrong("malloc_info");
  if (mallinfo2().arena == 0) wrong("mallinfo2");
  if (control != NULL && (control("stats.allocated", &live, &live_bytes, NULL, 0) != 0 || live == 0)) wrong("mallctl");
  if (!confined) {
    getppid();
    const pid_t child = fork();
    if (child == 0) {
      use_threads();
      exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) wrong("the child");
  }
  if (now.tv_sec < 1000) wrong("the time");
  if (write(STDOUT_FILENO, "done\n", 5) != 5) return 1;
  if (!confined) getppid();
  return 0;
}
