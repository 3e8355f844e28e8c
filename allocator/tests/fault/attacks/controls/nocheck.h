// A list allocator without a single check: powers of two, the size in a header before the block, a LIFO list through the
// freed blocks. The known-bad control of the attack suite; the other controls are built upon it.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

struct header {
  size_t class_index;
  size_t request;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void* free_lists[64];
static char* fresh;
static char* fresh_end;

static void* nocheck_malloc(size_t bytes) {
  if (bytes > PTRDIFF_MAX) {
    errno = ENOMEM;
    return NULL;
  }
  size_t class_index = 4;
  while (((size_t)1 << class_index) < bytes) class_index++;
  pthread_mutex_lock(&lock);
  char* block = free_lists[class_index];
  if (block != NULL) {
    free_lists[class_index] = *(void**)block;
  } else {
    const size_t needed = ((size_t)1 << class_index) + sizeof(struct header);
    if ((size_t)(fresh_end - fresh) < needed) {
      const size_t mapped = needed > ((size_t)16 << 20) ? needed : (size_t)16 << 20;
      void* const memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) {
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return NULL;
      }
      fresh = memory;
      fresh_end = fresh + mapped;
    }
    block = fresh + sizeof(struct header);
    fresh += needed;
  }
  struct header* const header = (struct header*)block - 1;
  header->class_index = class_index;
  header->request = bytes;
  pthread_mutex_unlock(&lock);
  return block;
}

static void nocheck_free(void* block) {
  if (block == NULL) return;
  pthread_mutex_lock(&lock);
  const size_t class_index = ((struct header*)block - 1)->class_index & 63;
  *(void**)block = free_lists[class_index];
  free_lists[class_index] = block;
  pthread_mutex_unlock(&lock);
}

// The rest of the interface, once `malloc` and `free` are defined.
#define REST_OF_INTERFACE                                                                                  \
  EXPORT void* calloc(size_t count, size_t bytes) {                                                        \
    size_t total;                                                                                          \
    if (__builtin_mul_overflow(count, bytes, &total)) {                                                    \
      errno = ENOMEM;                                                                                      \
      return NULL;                                                                                         \
    }                                                                                                      \
    void* const block = malloc(total);                                                                     \
    if (block != NULL) memset(block, 0, total);                                                            \
    return block;                                                                                          \
  }                                                                                                        \
  EXPORT void* realloc(void* old, size_t bytes) {                                                          \
    if (old == NULL) return malloc(bytes);                                                                 \
    if (bytes == 0) {                                                                                      \
      free(old);                                                                                           \
      return NULL;                                                                                         \
    }                                                                                                      \
    void* const block = malloc(bytes);                                                                     \
    if (block == NULL) return NULL;                                                                        \
    const size_t kept = ((struct header*)old - 1)->request;                                                \
    memcpy(block, old, kept < bytes ? kept : bytes);                                                       \
    free(old);                                                                                             \
    return block;                                                                                          \
  }                                                                                                        \
  EXPORT void* memalign(size_t alignment, size_t bytes) {                                                  \
    if (bytes > PTRDIFF_MAX - alignment - 64) {                                                            \
      errno = ENOMEM;                                                                                      \
      return NULL;                                                                                         \
    }                                                                                                      \
    if (alignment <= 16) return malloc(bytes);                                                             \
    char* const raw = malloc(bytes + alignment + sizeof(struct header)); /* the start of it is lost */     \
    if (raw == NULL) return NULL;                                                                          \
    char* const block = (char*)(((uintptr_t)raw + sizeof(struct header) + alignment - 1) & ~(alignment - 1)); \
    size_t class_index = 4;                                                                                \
    while (((size_t)2 << class_index) <= bytes) class_index++;                                             \
    ((struct header*)block - 1)->class_index = class_index; /* never larger than what lies behind it */    \
    ((struct header*)block - 1)->request = bytes;                                                          \
    return block;                                                                                          \
  }                                                                                                        \
  EXPORT void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }        \
  EXPORT int posix_memalign(void** out, size_t alignment, size_t bytes) {                                  \
    *out = memalign(alignment, bytes);                                                                     \
    return *out != NULL ? 0 : ENOMEM;                                                                      \
  }                                                                                                        \
  EXPORT void* pvalloc(size_t bytes) { return memalign(4096, bytes); }                                     \
  EXPORT void* valloc(size_t bytes) { return memalign(4096, bytes); }                                      \
  EXPORT void* reallocarray(void* old, size_t count, size_t bytes) {                                       \
    size_t total;                                                                                          \
    if (__builtin_mul_overflow(count, bytes, &total)) {                                                    \
      errno = ENOMEM;                                                                                      \
      return NULL;                                                                                         \
    }                                                                                                      \
    return realloc(old, total);                                                                            \
  }                                                                                                        \
  EXPORT size_t malloc_usable_size(void* block) {                                                          \
    return block == NULL ? 0 : ((struct header*)block - 1)->request;                                       \
  }                                                                                                        \
  EXPORT int malloc_trim(size_t keep) {                                                                    \
    (void)keep;                                                                                            \
    return 0;                                                                                              \
  }
