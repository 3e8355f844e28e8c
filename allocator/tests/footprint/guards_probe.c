/* Fills the heap with large blocks, moves them about, and says how many mappings the process has; then takes most of
 * the mappings that the kernel allows, and says whether it got them.
 *   guards_probe BLOCKS OPERATIONS MAPPINGS      prints "START FILLED MOVED NEIGHBOURS got|refused"
 * NEIGHBOURS: how many of MOVED could be one mapping with the one before, which the kernel does not do where both had
 * memory before they met. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../support/mapping_count.h"

enum { kBlocksMax = 1 << 16, kPage = 4096 };
static void* blocks[kBlocksMax];

static unsigned long drawn = 12345;
static size_t draw(size_t bound) {
  drawn = drawn * 6364136223846793005UL + 1442695040888963407UL;
  return (size_t)(drawn >> 33) % bound;
}

/* Mostly runs; some blocks of slabs, a few mappings of their own. */
static size_t size(void) {
  switch (draw(16)) {
    case 0: return 1 + draw(32 << 10);
    case 1: return draw(64) == 0 ? (40 << 20) + draw(1 << 20) : 1 << 20;
    default: return (33 << 10) + draw(300 << 10);
  }
}

static size_t neighbour_count(void) {
  char line[512];
  size_t length = 0, count = 0;
  unsigned long from, end, end_before = 0;
  char access[8], access_before[8] = "";
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  static char text[1 << 16];
  for (ssize_t got; file >= 0 && (got = read(file, text, sizeof text)) > 0;) {
    for (ssize_t k = 0; k < got; ++k) {
      if (text[k] != '\n') {
        if (length < sizeof line - 1) line[length++] = text[k];
        continue;
      }
      line[length] = 0;
      length = 0;
      if (sscanf(line, "%lx-%lx %7s", &from, &end, access) != 3 || strpbrk(line, "/[") != NULL) continue;
      count += from == end_before && strcmp(access, access_before) == 0;
      end_before = end;
      strcpy(access_before, access);
    }
  }
  if (file >= 0) close(file);
  return count;
}

static const char* take_mappings(size_t count) {
  char* const pages = mmap(NULL, (count + 1) * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t k = 1; k < count; k += 2)
    if (pages == MAP_FAILED || mprotect(pages + k * kPage, kPage, PROT_READ) != 0) return "refused";
  return "got";
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const size_t count = (size_t)atol(argv[1]);
  const size_t start = mapping_count();
  for (size_t k = 0; k < count; ++k)
    if ((blocks[k] = malloc(size())) == NULL) return 3;
  const size_t filled = mapping_count();
  size_t moved = filled, neighbours = 0;
  for (long k = 0; k < atol(argv[2]); ++k) {
    void** const block = &blocks[draw(count)];
    if (draw(4) == 0) {
      if ((*block = realloc(*block, size())) == NULL) return 3;
    } else {
      free(*block);
      if ((*block = malloc(size())) == NULL) return 3;
    }
    if (k % 1000 == 0) {
      const size_t now = mapping_count();
      if (now > moved) {
        moved = now;
        neighbours = neighbour_count();
      }
    }
  }
  printf("%zu %zu %zu %zu %s\n", start, filled, moved, neighbours, take_mappings((size_t)atol(argv[3])));
  return 0;
}
