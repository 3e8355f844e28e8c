/* Stands in for libjemalloc.so.2 under Debian's redis-server, so that the program's malloc is whoever's turn it is.
 * These are the names that it takes from jemalloc besides malloc's own. Every figure is 0, and the arenas that
 * redis 8 creates are malloc's: it ends when jemalloc refuses either. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int mallctl(const char* name, void* old_value, size_t* old_bytes, void* new_value, size_t new_bytes) {
  (void)name, (void)new_value, (void)new_bytes;
  if (old_value != NULL) memset(old_value, 0, *old_bytes);
  return 0;
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

void* rallocx(void* block, size_t bytes, int flags) {
  (void)flags;
  return realloc(block, bytes);
}

void dallocx(void* block, int flags) {
  (void)flags;
  free(block);
}
