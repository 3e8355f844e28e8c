/* recorder/calls.c: the allocation functions of C that the program finds. Each calls the next library's function and
 * stores an event. The next library is the one that would serve the program without this one.
 *
 * A death is recorded before the call and a birth after it. So the events of one address are in order, whichever thread
 * frees it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/next.h"
#include "recorder/thread.h"

#define EXPORT __attribute__((visibility("default")))

static void* first_malloc(size_t size);
static void* first_calloc(size_t count, size_t size);
static void* first_realloc(void* block, size_t size);
static void first_free(void* block);

struct fsr_next fsr_next = {first_malloc, first_calloc, first_realloc, first_free, NULL, NULL,
                            NULL,         NULL,         NULL,          NULL,       NULL};

/* Memory for what dlsym itself allocates while it looks up the next library: a few hundred bytes, never reused. */
static _Alignas(16) char bootstrap[65536];
static size_t bootstrap_used;
static bool resolving;

static bool is_bootstrap(const void* block) { return (uintptr_t)block - (uintptr_t)bootstrap < sizeof bootstrap; }

static void* bootstrap_take(size_t size) {
  const size_t rounded = (size + 31) & ~(size_t)15; /* 16 bytes in front hold the size */
  if (rounded < size || rounded > sizeof bootstrap) return NULL;
  const size_t at = __atomic_fetch_add(&bootstrap_used, rounded, __ATOMIC_RELAXED); /* a counter that orders nothing */
  if (at > sizeof bootstrap - rounded) return NULL;
  memcpy(bootstrap + at, &size, sizeof size);
  return bootstrap + at + 16;
}

static void checked_free(void* block);
static void* checked_realloc(void* block, size_t size);
static void (*real_free)(void*);
static void* (*real_realloc)(void*, size_t);

static void resolve(void) {
  if (resolving) return;
  resolving = true;
  const bool in_slow = fsr_self.in_slow;
  fsr_self.in_slow = true; /* the program does not make dlsym's allocations */
  void* (*found_malloc)(size_t) = (void* (*)(size_t))dlsym(RTLD_NEXT, "malloc");
  void* (*found_calloc)(size_t, size_t) = (void* (*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
  real_realloc = (void* (*)(void*, size_t))dlsym(RTLD_NEXT, "realloc");
  real_free = (void (*)(void*))dlsym(RTLD_NEXT, "free");
  if (!found_malloc || !found_calloc || !real_realloc || !real_free) abort(); /* a program without malloc */
  fsr_next.realloc = bootstrap_used ? checked_realloc : real_realloc;
  fsr_next.free = bootstrap_used ? checked_free : real_free;
  fsr_next.calloc = found_calloc;
  fsr_next.malloc = found_malloc;
  /* For a missing name dlsym allocates a message. By now the next library serves that. */
  fsr_next.aligned_alloc = (void* (*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
  fsr_next.memalign = (void* (*)(size_t, size_t))dlsym(RTLD_NEXT, "memalign");
  fsr_next.posix_memalign = (int (*)(void**, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
  fsr_next.valloc = (void* (*)(size_t))dlsym(RTLD_NEXT, "valloc");
  fsr_next.pvalloc = (void* (*)(size_t))dlsym(RTLD_NEXT, "pvalloc");
  fsr_next.free_sized = (void (*)(void*, size_t))dlsym(RTLD_NEXT, "free_sized");
  fsr_next.free_aligned_sized = (void (*)(void*, size_t, size_t))dlsym(RTLD_NEXT, "free_aligned_sized");
  fsr_self.in_slow = in_slow;
  resolving = false;
}

FSR_LOCAL void fsr_resolve(void) {
  if (fsr_next.malloc == first_malloc) resolve();
}

static void* first_malloc(size_t size) {
  resolve();
  return fsr_next.malloc == first_malloc ? bootstrap_take(size) : fsr_next.malloc(size);
}

static void* first_calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  resolve();
  return fsr_next.calloc == first_calloc ? bootstrap_take(bytes) : fsr_next.calloc(count, size);
}

static void* first_realloc(void* block, size_t size) {
  resolve();
  if (fsr_next.realloc != first_realloc) return fsr_next.realloc(block, size);
  return block ? checked_realloc(block, size) : bootstrap_take(size);
}

static void first_free(void* block) {
  resolve();
  if (fsr_next.free != first_free) fsr_next.free(block);
}

static void checked_free(void* block) {
  if (!is_bootstrap(block)) real_free(block);
}

static void* checked_realloc(void* block, size_t size) {
  if (!is_bootstrap(block)) return real_realloc(block, size);
  size_t old;
  memcpy(&old, (char*)block - 16, sizeof old);
  void* moved = fsr_next.malloc(size);
  if (moved) memcpy(moved, block, old < size ? old : size);
  return moved;
}

static unsigned log2_of(size_t alignment) { return alignment ? (unsigned)(63 - __builtin_clzll(alignment)) : 0; }

EXPORT void* malloc(size_t size) {
  void* block = fsr_next.malloc(size);
  fsr_birth(FST_MALLOC, 0, block, size);
  return block;
}

EXPORT void* calloc(size_t count, size_t size) {
  void* block = fsr_next.calloc(count, size);
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX >> 16; /* such a call fails */
  fsr_birth(FST_CALLOC, 0, block, bytes);
  return block;
}

EXPORT void free(void* block) {
  if (block) fsr_death(FST_FREE, block);
  fsr_next.free(block);
}

EXPORT void* realloc(void* block, size_t size) {
  if (!block) {
    void* made = fsr_next.realloc(NULL, size);
    fsr_birth(FST_REALLOC_NULL, 0, made, size);
    return made;
  }
  fsr_death(kRawReallocBegin, block);
  void* moved = fsr_next.realloc(block, size);
  fsr_realloc_end(moved, size);
  return moved;
}

EXPORT void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(block, bytes);
}

EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  fsr_resolve();
  void* block = fsr_next.aligned_alloc(alignment, size);
  fsr_birth(FST_ALIGNED_ALLOC, log2_of(alignment), block, size);
  return block;
}

EXPORT void* memalign(size_t alignment, size_t size) {
  fsr_resolve();
  void* block = fsr_next.memalign(alignment, size);
  fsr_birth(FST_MEMALIGN, log2_of(alignment), block, size);
  return block;
}

EXPORT int posix_memalign(void** block, size_t alignment, size_t size) {
  fsr_resolve();
  const int error = fsr_next.posix_memalign(block, alignment, size);
  if (error != EINVAL) fsr_birth(FST_POSIX_MEMALIGN, log2_of(alignment), error ? NULL : *block, size);
  return error;
}

EXPORT void* valloc(size_t size) {
  fsr_resolve();
  if (!fsr_next.valloc) return memalign(4096, size);
  void* block = fsr_next.valloc(size);
  fsr_birth(FST_VALLOC, 0, block, size);
  return block;
}

EXPORT void* pvalloc(size_t size) {
  fsr_resolve();
  if (!fsr_next.pvalloc) return memalign(4096, (size + 4095) & ~(size_t)4095);
  void* block = fsr_next.pvalloc(size);
  fsr_birth(FST_PVALLOC, 0, block, size);
  return block;
}

EXPORT void free_sized(void* block, size_t size) {
  fsr_resolve();
  if (block) fsr_death(FST_FREE_SIZED, block);
  if (fsr_next.free_sized)
    fsr_next.free_sized(block, size);
  else
    fsr_next.free(block);
}

EXPORT void free_aligned_sized(void* block, size_t alignment, size_t size) {
  fsr_resolve();
  if (block) fsr_death(FST_FREE_ALIGNED_SIZED, block);
  if (fsr_next.free_aligned_sized)
    fsr_next.free_aligned_sized(block, alignment, size);
  else
    fsr_next.free(block);
}
