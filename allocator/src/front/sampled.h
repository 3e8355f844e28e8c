// Room 9, front: sampled blocks. One allocation in so many bytes is served apart from the slabs, so that its free is seen.
//
// Which allocation is sampled is decided where caches meet the bitmaps: each refill takes its bytes off the thread's
// countdown and stops where the countdown ends, so the next allocation of that class goes the slow way and is the sample. The
// fast paths know nothing of it. A sampled block lies in units of its own with the tag kTagSampled, whose cache entry is always
// full: its free arrives at the slow path.
//
// Nothing below insight calls it by name: the observer's functions are reached through `sample_observer`.
#pragma once

#include "base/atomic.h"
#include "region/region.h"

namespace freestone {

// Set once, before the first sample; the functions run on the allocating or freeing thread, with no lock held, and may not allocate
// through malloc.
struct SampleObserver {
  // The bytes until the next sample of this thread.
  i64 (*next_interval)();
  // A block of `bytes` at a multiple of `alignment` was asked for and is the sample. Null: serve it as an ordinary one.
  void* (*allocate)(usize bytes, usize alignment);
  // A sampled block is freed. The observer gives its units back.
  void (*deallocate)(void* block, UnitIndex first);
};
extern Atomic<const SampleObserver*> sample_observer;

// Units for a sampled block, tagged; record_of(first).request_bytes is `bytes`, words[0] holds the block's address. The block
// starts `offset` bytes into them. kNoUnit when memory is out.
UnitIndex take_sampled_units(usize bytes, usize units, usize alignment_units, usize offset);
void return_sampled_units(UnitIndex first);

inline void* sampled_block(UnitIndex first) { return reinterpret_cast<void*>(record_of(first).words[0].load_relaxed()); }
inline usize sampled_bytes(UnitIndex first) { return record_of(first).request_bytes; }
// The first unit of the sampled block that `pointer` points into; kNoUnit when it is not inside one.
UnitIndex sampled_first_unit(const void* pointer);

}  // namespace freestone
