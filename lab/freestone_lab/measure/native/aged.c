// Preloaded behind an allocator: the program starts in a heap with holes, as after hours of work. Before its main,
// blocks are allocated, written and freed by a law that the seed in $FREESTONE_AGED decides: the same calls under every
// allocator. The processes that it starts have a new heap.
//
// The law: sizes from 16 B to 64 KiB, as many bytes in each doubling. The heap grows to 16 MiB, and four times half of
// it is freed and filled anew; then all but 4 MiB are freed. Blocks that were allocated one after the other are freed
// together, eight on average.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kPeak = 16 << 20, kHalf = 8 << 20, kStays = 4 << 20, kCycles = 4, kBlocks = 1 << 20, kDoublings = 12 };

static uint64_t state;
static unsigned** blocks;  // each begins with its size; null: free
static size_t live, used;

static uint64_t draw(void) {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// Half of all blocks lie in the first doubling, a quarter in the second.
static unsigned draw_size(void) {
  unsigned doubling = 0;
  for (uint64_t bits = draw(); (bits & 1) != 0 && doubling < kDoublings - 1; bits >>= 1) ++doubling;
  const uint64_t least = 16u << doubling;
  return (unsigned)(least + draw() % least);
}

static void fill(size_t bytes) {
  for (size_t i = 0; live < bytes && i < kBlocks; ++i) {
    if (blocks[i] != NULL) continue;
    const unsigned size = draw_size();
    unsigned* const block = malloc(size);
    if (block == NULL) return;
    memset(block, 1, size);
    *block = size;
    blocks[i] = block;
    live += size;
    if (i >= used) used = i + 1;
  }
}

static void drain(size_t bytes) {
  while (live > bytes) {
    size_t i = draw() % used;
    do {
      if (blocks[i] == NULL) continue;
      live -= *blocks[i];
      free(blocks[i]);
      blocks[i] = NULL;
    } while (draw() % 8 != 0 && ++i < used && live > bytes);
  }
}

static void age(uint64_t seed) {
  const size_t bytes = kBlocks * sizeof *blocks;
  blocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (blocks == MAP_FAILED) return;
  state = seed;
  fill(kPeak);
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    drain(kHalf);
    fill(kPeak);
  }
  drain(kStays);
  munmap(blocks, bytes);
}

// What starts the program, when the constructors of all libraries have run.
int __libc_start_main(int (*program)(int, char**, char**), int argc, char** argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void* stack_end) {
  const __auto_type libc = (__typeof__(&__libc_start_main))dlsym(RTLD_NEXT, "__libc_start_main");
  const char* const seed = getenv("FREESTONE_AGED");
  if (seed != NULL) {
    age(strtoull(seed, NULL, 10));
    unsetenv("FREESTONE_AGED");
  }
  return libc(program, argc, argv, init, fini, rtld_fini, stack_end);
}
