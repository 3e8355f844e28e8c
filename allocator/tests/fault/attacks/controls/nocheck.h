// A list allocator without a single check: the block's size stands in the word before it, freed blocks of one size form
// a last-in-first-out list whose links are their first words, and whatever size is read is believed. The known-bad
// control of the attack suite; the other controls are built upon it.
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

// Strides are multiples of 16; a block may use the stride's bytes but the last word, which is the next block's size.
enum { kListed = 1 << 19 };  // strides below 8 MiB have a list; larger blocks have a mapping each

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void* free_lists[kListed];
static char* fresh;
static char* fresh_end;

static size_t* size_word(void* block) { return (size_t*)block - 1; }

static size_t usable(void* block) { return (*size_word(block) & ~(size_t)15) - sizeof(size_t); }

static void* map(size_t bytes) {
  void* const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void* nocheck_malloc(size_t bytes) {
  if (bytes > PTRDIFF_MAX) {
    errno = ENOMEM;
    return NULL;
  }
  const size_t needed = (bytes + sizeof(size_t) + 15) & ~(size_t)15;
  const size_t stride = needed < 32 ? 32 : needed;
  if (stride / 16 >= kListed) {
    char* const memory = map(stride + 16);
    if (memory == NULL) {
      errno = ENOMEM;
      return NULL;
    }
    *size_word(memory + 16) = stride;
    return memory + 16;
  }
  pthread_mutex_lock(&lock);
  char* block = free_lists[stride / 16];
  if (block != NULL) {
    free_lists[stride / 16] = *(void**)block;
  } else {
    if ((size_t)(fresh_end - fresh) < stride + 32) {
      char* const memory = map((size_t)64 << 20);
      if (memory == NULL) {
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return NULL;
      }
      fresh = memory + 16;
      fresh_end = memory + ((size_t)64 << 20);
    }
    block = fresh;
    fresh += stride;
    *size_word(block) = stride;
  }
  pthread_mutex_unlock(&lock);
  return block;
}

static void nocheck_free(void* block) {
  if (block == NULL) return;
  const size_t stride = *size_word(block) & ~(size_t)15;
  if (stride / 16 >= kListed) {
    munmap((char*)block - 16, stride + 16);
    return;
  }
  pthread_mutex_lock(&lock);
  *(void**)block = free_lists[stride / 16];
  free_lists[stride / 16] = block;
  pthread_mutex_unlock(&lock);
}

// The start of the underlying block is lost, and its size word with it.
static void* nocheck_memalign(void* (*take)(size_t), size_t alignment, size_t bytes) {
  if (bytes > PTRDIFF_MAX - 2 * alignment - 64) {
    errno = ENOMEM;
    return NULL;
  }
  if (alignment <= 16) return take(bytes);
  char* const raw = take(bytes + alignment + 32);
  if (raw == NULL) return NULL;
  char* const block = (char*)(((uintptr_t)raw + 16 + alignment - 1) & ~(alignment - 1));
  const size_t needed = (bytes + sizeof(size_t) + 15) & ~(size_t)15;
  *size_word(block) = needed < 32 ? 32 : needed;
  return block;
}

// The rest of the interface, once `malloc` and `free` are defined.
#define REST_OF_INTERFACE                                                                             \
  EXPORT void* calloc(size_t count, size_t bytes) {                                                   \
    size_t total;                                                                                     \
    if (__builtin_mul_overflow(count, bytes, &total)) {                                               \
      errno = ENOMEM;                                                                                 \
      return NULL;                                                                                    \
    }                                                                                                 \
    void* const block = malloc(total);                                                                \
    if (block != NULL) memset(block, 0, total);                                                       \
    return block;                                                                                     \
  }                                                                                                   \
  EXPORT void* realloc(void* old, size_t bytes) {                                                     \
    if (old == NULL) return malloc(bytes);                                                            \
    if (bytes == 0) {                                                                                 \
      free(old);                                                                                      \
      return NULL;                                                                                    \
    }                                                                                                 \
    void* const block = malloc(bytes);                                                                \
    if (block == NULL) return NULL;                                                                   \
    const size_t kept = usable(old);                                                                  \
    memcpy(block, old, kept < bytes ? kept : bytes);                                                  \
    free(old);                                                                                        \
    return block;                                                                                     \
  }                                                                                                   \
  EXPORT void* memalign(size_t alignment, size_t bytes) {                                             \
    return nocheck_memalign(malloc, alignment, bytes);                                                \
  }                                                                                                   \
  EXPORT void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }   \
  EXPORT int posix_memalign(void** out, size_t alignment, size_t bytes) {                             \
    *out = memalign(alignment, bytes);                                                                \
    return *out != NULL ? 0 : ENOMEM;                                                                 \
  }                                                                                                   \
  EXPORT void* pvalloc(size_t bytes) { return memalign(4096, bytes); }                                \
  EXPORT void* valloc(size_t bytes) { return memalign(4096, bytes); }                                 \
  EXPORT void* reallocarray(void* old, size_t count, size_t bytes) {                                  \
    size_t total;                                                                                     \
    if (__builtin_mul_overflow(count, bytes, &total)) {                                               \
      errno = ENOMEM;                                                                                 \
      return NULL;                                                                                    \
    }                                                                                                 \
    return realloc(old, total);                                                                       \
  }                                                                                                   \
  EXPORT size_t malloc_usable_size(void* block) { return block == NULL ? 0 : usable(block); }         \
  EXPORT int malloc_trim(size_t keep) {                                                               \
    (void)keep;                                                                                       \
    return 0;                                                                                         \
  }
