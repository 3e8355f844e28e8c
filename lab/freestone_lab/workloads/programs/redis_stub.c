/* Stands in for libjemalloc.so.2 under Debian's redis-server, so that the program's malloc is whoever's turn it is.
 * These are the names that it takes from jemalloc besides malloc's own: the first two report "not available", nallocx
 * answers that a request is not rounded up, and the flags of the others say from which part of a heap. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

int mallctl(const char* name, void* old_value, size_t* old_bytes, void* new_value, size_t new_bytes) {
  (void)name, (void)old_value, (void)old_bytes, (void)new_value, (void)new_bytes;
  return ENOENT;
}

void malloc_stats_print(void (*write)(void*, const char*), void* context, const char* options) {
  (void)write, (void)context, (void)options;
}

size_t nallocx(size_t bytes, int flags) {
  (void)flags;
  return bytes;
}

void* mallocx(size_t bytes, int flags) {
  (void)flags;
  return malloc(bytes);
}

void dallocx(void* block, int flags) {
  (void)flags;
  free(block);
}
