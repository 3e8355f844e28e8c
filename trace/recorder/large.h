/* recorder/large.h: the large live blocks of this process, so that a free can say how much of one was in use.
 *
 * A free asks one byte of `fsr_large_counts`; only where that is not zero, the table. What finds no place in the table
 * is not watched: the writer still looks at it from outside, at intervals.
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
         0; /* who frees a block knows of its birth */
}

/* Notes a block that was just made. */
__attribute__((visibility("hidden"))) void fsr_large_add(uintptr_t address, uint64_t size);

/* Takes a block out before it ends; its resident pages in `pages`. False when it was not noted. */
__attribute__((visibility("hidden"))) bool fsr_large_remove(uintptr_t address, uint64_t* pages);

#endif
