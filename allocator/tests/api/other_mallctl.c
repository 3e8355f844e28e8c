/* Stands for jemalloc: it made arena 7, and answers whatever Freestone does not. */
#include <errno.h>
#include <string.h>

int mallctl(const char* name, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes);

int mallctl(const char* name, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes) {
  (void)fresh;
  (void)fresh_bytes;
  const unsigned arena = 7;
  const size_t pages = 70;
  if (strcmp(name, "arenas.create") == 0 && *old_bytes == sizeof arena) return memcpy(old, &arena, sizeof arena), 0;
  if (strncmp(name, "stats.arenas.", 13) == 0 && *old_bytes == sizeof pages)
    return memcpy(old, &pages, sizeof pages), 0;
  return ENOENT;
}
