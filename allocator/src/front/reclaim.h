// Room 9, front: the last attempts of an allocation before it fails.
//
// At a limit, or when the kernel refuses, the allocator gives back all memory that it keeps for reuse, and asks the
// other threads to do so at their next slow path. Then it asks the program's handler.
#pragma once

#include "base/atomic.h"
#include "base/units.h"
#include "config/options.h"

namespace freestone {

// What one allocation that found no memory has tried.
struct Shortage {
  bool gave_back = false;
  unsigned asked = 0;  // times that the program's handler was asked
};
// Called each time that an allocation of `bytes` found no memory. True: try again.
bool reclaim_memory(usize bytes, Shortage& shortage);

// Gives back this thread's cache, the run caches and all dirty memory, and raises the pressure epoch. Returns the bytes
// by which the account shrank.
usize give_back_everything();

// Once the allocator is up: gives back what is free, the calling thread's cache, dirty spans beyond `keep_bytes`, whole
// free pages in slabs. Returns whether anything was given.
bool trim(usize keep_bytes);

struct ReclaimCounts {
  u64 reclaims;            // times that everything was given back because an allocation found no memory
  u64 failed_allocations;  // allocations that returned null in spite of it
};
ReclaimCounts reclaim_counts();

// Asked before an allocation fails; returns whether to try again. It may free memory; it may not assume that it can
// allocate.
struct OutOfMemoryHandler {
  bool (*ask)(void* context, usize bytes, unsigned attempt);
  void* context;
};
inline const OutOfMemoryHandler* out_of_memory_handler() {
  return static_cast<const OutOfMemoryHandler*>(sealed_page.callbacks.out_of_memory.load_acquire());
}

}  // namespace freestone
