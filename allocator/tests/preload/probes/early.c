/* A library that uses the heap before the allocator's own constructors have run and after its destructors: preloaded on
 * either side. */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char* kept[64];
static pthread_key_t key;

static void use_heap(void) {
  for (size_t i = 0; i < 64; ++i) {
    char* block = malloc(i * i * 8 + 1);
    if (block == NULL || malloc_usable_size(block) < i * i * 8 + 1) _exit(98);
    memset(block, (int)i, i * i * 8 + 1);
    block = realloc(block, i * 100 + 50);
    if (block == NULL || (i > 0 && block[0] != (char)i)) _exit(98);
    free(kept[i]);
    kept[i] = block;
  }
}

static void* thread_body(void* unused) {
  use_heap();
  pthread_setspecific(key, kept);
  return unused;
}

static void key_destructor(void* unused) {
  (void)unused;
  use_heap();
}

__attribute__((constructor(101))) static void before_everything(void) {
  pthread_t thread;
  use_heap();
  pthread_key_create(&key, key_destructor);
  if (pthread_create(&thread, NULL, thread_body, NULL) == 0) pthread_join(thread, NULL);
  atexit(use_heap);
}

__attribute__((destructor(101))) static void after_everything(void) {
  use_heap();
  for (size_t i = 0; i < 64; ++i) free(kept[i]);
  const char done[] = "early: done\n";
  if (write(1, done, sizeof done - 1) < 0) _exit(98);
}
