/* The base of the controls: every name of the family, forwarded to glibc's own entry points, with two hooks.
 *
 * A control defines, before including this file, what it changes:
 *   CONTROL_AFTER_ALLOC(pointer, bytes)  expression: the pointer that the caller gets (default: unchanged)
 *   CONTROL_BEFORE_REALLOC(pointer)      expression: the block that glibc gets to resize (default: unchanged)
 *   CONTROL_BEFORE_FREE(pointer)         expression: the pointer that glibc gets to free; NULL forgets the block
 * glibc's __libc_* entry points are exported for this purpose and never resolve to a preloaded library.
 */
#ifndef FREESTONE_CONTROL_FORWARD_H
#define FREESTONE_CONTROL_FORWARD_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

extern void* __libc_malloc(size_t bytes);
extern void __libc_free(void* pointer);
extern void* __libc_calloc(size_t count, size_t bytes);
extern void* __libc_realloc(void* pointer, size_t bytes);
extern void* __libc_memalign(size_t alignment, size_t bytes);
extern void* __libc_valloc(size_t bytes);
extern void* __libc_pvalloc(size_t bytes);

#ifndef CONTROL_AFTER_ALLOC
#define CONTROL_AFTER_ALLOC(pointer, bytes) (pointer)
#endif
#ifndef CONTROL_BEFORE_REALLOC
#define CONTROL_BEFORE_REALLOC(pointer) (pointer)
#endif
#ifndef CONTROL_BEFORE_FREE
#define CONTROL_BEFORE_FREE(pointer) (pointer)
#endif

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void* malloc(size_t bytes) { return CONTROL_AFTER_ALLOC(__libc_malloc(bytes), bytes); }

EXPORTED void free(void* pointer) { __libc_free(CONTROL_BEFORE_FREE(pointer)); }

EXPORTED void* calloc(size_t count, size_t bytes) {
  return CONTROL_AFTER_ALLOC(__libc_calloc(count, bytes), count * bytes);
}

EXPORTED void* realloc(void* pointer, size_t bytes) {
  return CONTROL_AFTER_ALLOC(__libc_realloc(CONTROL_BEFORE_REALLOC(pointer), bytes), bytes);
}

EXPORTED void* memalign(size_t alignment, size_t bytes) {
  return CONTROL_AFTER_ALLOC(__libc_memalign(alignment, bytes), bytes);
}

EXPORTED void* aligned_alloc(size_t alignment, size_t bytes) {
  const int wrong = alignment == 0 || (alignment & (alignment - 1)) != 0;
  return __GLIBC_PREREQ(2, 38) && wrong ? (errno = EINVAL, NULL) : memalign(alignment, bytes);
}

EXPORTED int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  const int saved = errno;
  void* pointer = memalign(alignment, bytes);
  errno = saved;
  if (pointer == NULL) return ENOMEM;
  *out = pointer;
  return 0;
}

EXPORTED void* valloc(size_t bytes) { return CONTROL_AFTER_ALLOC(__libc_valloc(bytes), bytes); }

EXPORTED void* pvalloc(size_t bytes) { return CONTROL_AFTER_ALLOC(__libc_pvalloc(bytes), bytes); }

/* malloc_usable_size, mallinfo2, malloc_trim and the rest are glibc's already and see these very blocks. */

/* The value of a decimal environment variable; `fallback` when it is unset or no number. Allocates nothing. */
static inline uint64_t control_parameter(const char* name, uint64_t fallback) {
  const char* text = getenv(name);
  if (text == NULL || *text == '\0') return fallback;
  uint64_t value = 0;
  for (; *text != '\0'; ++text) {
    if (*text < '0' || *text > '9') return fallback;
    value = value * 10 + (uint64_t)(*text - '0');
  }
  return value;
}

#endif
