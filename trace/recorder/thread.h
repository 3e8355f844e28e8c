/* recorder/thread.h: one thread's place in its block, and the fast path that stores an event there.
 *
 * The fast path is one addition to the cursor that a signal cannot split, one compare, the counter, and two stores.
 * fsr_record_slow (thread.c) does everything else: the first call of a thread, a full block, a recording that is over
 * or not wanted.
 */
#ifndef FREESTONE_RECORDER_THREAD_H
#define FREESTONE_RECORDER_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "freestone/trace.h"
#include "recorder/large.h"
#include "recorder/shared.h"

#define FSR_LOCAL __attribute__((visibility("hidden")))
#define FSR_UNLIKELY(x) __builtin_expect(!!(x), 0)

struct fsr_thread {
  uintptr_t cursor;      /* where the next event goes */
  uintptr_t birth_limit; /* births are recorded below it; 0: none are, or the slow path must decide */
  uintptr_t death_limit; /* the same for frees */
  uintptr_t end;         /* of the block */
  struct fsr_block* block;
  uint32_t number; /* of this thread in the recording */
  uint32_t sequence;
  uint32_t nested; /* > 0: inside a recorded call; the limits are then 0 and saved here: */
  uintptr_t saved_birth_limit;
  uintptr_t saved_death_limit;
  uint32_t generation; /* of the session that `block` belongs to */
  uint32_t process;
  bool numbered;
  bool skipped; /* by --sample-threads: its births are not recorded */
  bool in_slow;
  uint64_t gap_until_s; /* drops events until this second of the monotonic clock; 0: drops none */
  uint64_t gap_from_s;
  uint64_t waited_ns;
};

extern FSR_LOCAL __thread struct fsr_thread fsr_self __attribute__((tls_model("initial-exec")));

FSR_LOCAL void fsr_record_slow(struct fsr_thread* self, unsigned kind, unsigned align_log2, uintptr_t address,
                               uint64_t size);

/* A place for an event, or 0. Two threads never share a cursor. A signal handler of the same thread may interrupt
 * between any two instructions, and then gets the next place. */
static inline uintptr_t fsr_reserve(struct fsr_thread* self, const uintptr_t* limit) {
  uintptr_t place;
#if defined(__x86_64__)
  place = kEventBytes;
  __asm__("xaddq %0, %1" : "+r"(place), "+m"(self->cursor));
#else
  place = self->cursor;
  self->cursor = place + kEventBytes;
#endif
  return __builtin_expect(place < *limit, 1) ? place : 0;
}

static inline void fsr_store(uintptr_t place, unsigned kind, unsigned align_log2, uintptr_t address, uint64_t size,
                             uint64_t ticks) {
  uint64_t* words = (uint64_t*)place;
  words[1] = size << 32 | (uint32_t)ticks;
  __atomic_store_n(&words[0], (uint64_t)address << 16 | align_log2 << 8 | kind,
                   __ATOMIC_RELEASE); /* SHARED-1: the writer */
}

/* Watches a large block. One of 4 GiB or more makes two events, and the second may take the slow path. */
FSR_LOCAL void fsr_record_large(struct fsr_thread* self, uintptr_t place, unsigned kind, unsigned align_log2,
                                uintptr_t address, uint64_t size);

static inline void fsr_call_with(unsigned kind, unsigned align_log2, void* block, uint64_t size, bool birth) {
  struct fsr_thread* self = &fsr_self;
  const uintptr_t place = fsr_reserve(self, birth ? &self->birth_limit : &self->death_limit);
  if (FSR_UNLIKELY(place == 0)) {
    fsr_record_slow(self, kind, align_log2, (uintptr_t)block, size);
    return;
  }
  if (FSR_UNLIKELY(size >= FSR_LARGE_BYTES)) {
    fsr_record_large(self, place, kind, align_log2, (uintptr_t)block, size);
    return;
  }
  fsr_store(place, kind, align_log2, (uintptr_t)block, size, fsr_ticks());
}

static inline void fsr_birth(unsigned kind, unsigned align_log2, void* block, uint64_t size) {
  fsr_call_with(kind, align_log2, block, size, true);
}

/* Even a thread that --sample-threads leaves out records the ends of blocks, because others may have made them. */
static inline void fsr_realloc_end(void* block, uint64_t size) { fsr_call_with(FST_REALLOC, 0, block, size, false); }

/* Records how much of a large block is in use, just before it ends. */
FSR_LOCAL void fsr_record_pages(uintptr_t address);

static inline void fsr_death(unsigned kind, void* block) {
  struct fsr_thread* self = &fsr_self;
  if (FSR_UNLIKELY(fsr_large_possible((uintptr_t)block))) fsr_record_pages((uintptr_t)block);
  const uintptr_t place = fsr_reserve(self, &self->death_limit);
  if (FSR_UNLIKELY(place == 0)) {
    fsr_record_slow(self, kind, 0, (uintptr_t)block, 0);
    return;
  }
  fsr_store(place, kind, 0, (uintptr_t)block, 0, fsr_ticks());
}

#endif
