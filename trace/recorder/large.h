/* recorder/large.h: the large live blocks of this process, so that a free can say how much of one was in use.
 *
 * A free reads one byte of `fsr_large_counts`, and searches the table only if that is not zero. The recorder does not
 * watch a block that finds no place in the table, but the writer still looks at it from outside, at intervals.
 */
#ifndef FREESTONE_RECORDER_LARGE_H
#define FREESTONE_RECORDER_LARGE_H

#include <stdbool.h>
#include <stdint.h>

#define FSR_LARGE_BYTES (128u << 10)

extern __attribute__((visibility("hidden"))) uint8_t fsr_large_counts[256];

static inline unsigned fsr_large_bucket(uintptr_t address) { return (unsigned)(address >> 12 ^ address >> 20) & 255; }

static inline bool fsr_large_possible(uintptr_t address) {
  return __atomic_load_n(&fsr_large_counts[fsr_large_bucket(address)], __ATOMIC_RELAXED) !=
         0; /* relaxed: the thread that frees a block knows of its birth */
}

/* Notes a block that was just made. */
__attribute__((visibility("hidden"))) void fsr_large_add(uintptr_t address, uint64_t size);

/* Takes a block out before it ends and stores its resident pages in `pages`. False if it was not noted. */
__attribute__((visibility("hidden"))) bool fsr_large_remove(uintptr_t address, uint64_t* pages);

#endif
