/* Runs on the C library's malloc and loads the allocator late, again and again: dlopen_probe LIBRARY ROUNDS
 * [namespace]. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* (*malloc_type)(size_t);
typedef void (*free_type)(void*);

static malloc_type their_malloc;
static free_type their_free;

static void* use_theirs(void* unused) {
  void* blocks[200];
  for (size_t i = 0; i < 200; ++i) {
    blocks[i] = their_malloc(i * 50 + 1);
    if (blocks[i] == NULL) exit(3);
    memset(blocks[i], (int)i, i * 50 + 1);
  }
  for (size_t i = 0; i < 200; ++i) their_free(blocks[i]);
  return unused;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int rounds = atoi(argv[2]);
  for (int round = 0; round < rounds; ++round) {
    void* ours = malloc(1000);
    void* library = argc > 3 ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    their_malloc = (malloc_type)(size_t)dlsym(library, "malloc");
    their_free = (free_type)(size_t)dlsym(library, "free");
    if (their_malloc == malloc) return 4; /* the program was not on another malloc */
    use_theirs(NULL);
    if (argc <= 3) {
      pthread_t thread; /* it ends after the library is closed, as threads do */
      pthread_create(&thread, NULL, use_theirs, NULL);
      dlclose(library);
      pthread_join(thread, NULL);
    }
    free(ours);
  }
  printf("done\n");
  return 0;
}
