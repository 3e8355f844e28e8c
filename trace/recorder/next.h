/* recorder/next.h: the allocation functions behind the recorder's, found by dlsym(RTLD_NEXT) at the first call. */
#ifndef FREESTONE_RECORDER_NEXT_H
#define FREESTONE_RECORDER_NEXT_H

#include <stddef.h>

struct fsr_next {
  void* (*malloc)(size_t); /* this one and the next three are never null */
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void (*free)(void*);
  void* (*aligned_alloc)(size_t, size_t);
  void* (*memalign)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  void (*free_sized)(void*, size_t);
  void (*free_aligned_sized)(void*, size_t, size_t);
};

extern __attribute__((visibility("hidden"))) struct fsr_next fsr_next;

__attribute__((visibility("hidden"))) void fsr_resolve(void);

#endif
