/* Preloaded ahead of the allocator: counts the calls of malloc, of aligned_alloc and posix_memalign (libstdc++ has used
   either), and of free, as a profiler does. ONLY_PLAIN: a library that lacks both. OWN_MEMORY: an allocator of its own,
   which ends the process by foreign blocks and lacks reallocarray; libc's leads to its realloc. PROGRAM: the same. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atomic_long counted_calls[3];

#ifdef OWN_MEMORY
static char memory[(size_t)1 << 30];
static atomic_size_t used;

static void* next_aligned_alloc(size_t alignment, size_t bytes) {
  const size_t end = atomic_fetch_add(&used, bytes + 2 * alignment) + 2 * alignment;
  char* block = memory + end / alignment * alignment;
  memcpy(block - sizeof bytes, &bytes, sizeof bytes);
  return block;
}
static void* next_malloc(size_t bytes) { return next_aligned_alloc(16, bytes); }
static void next_free(void* block) {
  if (block != NULL && ((char*)block < memory || (char*)block >= memory + sizeof memory)) abort();
}
void* calloc(size_t count, size_t each) { return next_malloc(count * each); }
void* realloc(void* block, size_t bytes) {
  size_t before = 0;
  if (block != NULL) memcpy(&before, (char*)block - sizeof before, sizeof before);
  return memcpy(next_malloc(bytes), block, before < bytes ? before : bytes);
}
#else
#define next_malloc ((__typeof__(&malloc))dlsym(RTLD_NEXT, "malloc"))
#define next_aligned_alloc ((__typeof__(&aligned_alloc))dlsym(RTLD_NEXT, "aligned_alloc"))
#define next_free ((__typeof__(&free))dlsym(RTLD_NEXT, "free"))
#endif

void* malloc(size_t bytes) {
  ++counted_calls[0];
  return next_malloc(bytes);
}
#ifndef ONLY_PLAIN
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++counted_calls[1];
  return next_aligned_alloc(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  return (*block = aligned_alloc(alignment, bytes)) != NULL ? 0 : ENOMEM;
}
#endif
void free(void* block) {
  if (block != NULL) ++counted_calls[2];
  next_free(block);
}

#ifdef PROGRAM
const char* malloc_conf = "narenas:2"; /* as for jemalloc */

int main(void) {
  char* text = reallocarray(NULL, 3, 4);
  strcpy(text, "own malloc");
  text = reallocarray(text, 1000, 10);
  puts(text);
  free(text);
  return 0;
}
#endif
