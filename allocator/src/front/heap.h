// Room 9, front: every fast path, in the order in which they run. The slow paths are in heap.cc and large.cc.
//
//   malloc(n)                      16 instructions on the hit path, 7 loads, 1 store (tests/golden counts them)
//     class of n                   a table for n <= 1 KiB; arithmetic on the highest bit up to 256 KiB
//     pop from the thread cache    touches the cache's line for the class and the array slot, not the block
//     `- allocate_slow             first call, low-water mark, refill from slabs, runs above 256 KiB
//   free(p)                        18 instructions, 10 loads, 2 stores
//     in the window?               one subtraction, one compare: rejects null, foreign and wild addresses
//     tag of the unit              one byte load: the class, or a tag whose cache entry is always full
//     on top of the array already? a free of what was freed last is a double free (fast build)
//     push to the thread cache     does not touch the block
//     `- deallocate_slow           full cache, runs, own mappings, null, bad pointers, double frees
//
// The thread's cache is found as an offset from `no_cache`, a cache without any block: zero-initialised TLS therefore means "no
// cache yet", in a thread that has not allocated as well as before TLS is set up, and needs no test.
#pragma once

#include "cache/cache.h"
#include "region/region.h"

namespace freestone {

struct ThreadState {
  usize cache_offset = 0;   // of the thread's cache from no_cache
  Cache* parked = nullptr;  // the thread's cache, from a fork to the child's first slow path
  bool ended = false;       // the thread's destructor ran: no new cache
};

extern FREESTONE_HIDDEN Cache no_cache;
extern FREESTONE_HIDDEN FREESTONE_THREAD_LOCAL ThreadState this_thread;

// Out of line. They decide by themselves what the fast path could not.
void* allocate_slow(usize bytes);
void deallocate_slow(void* block);
void* allocate_zeroed_slow(usize bytes);

FREESTONE_INLINE Cache& thread_cache() {
  auto* cache = reinterpret_cast<Cache*>(reinterpret_cast<char*>(&no_cache) + this_thread.cache_offset);
  asm("" : "+r"(cache));  // keeps the address in one register; otherwise the index is added first, at two more instructions
  return *cache;
}

// At least `bytes` bytes, aligned to 16; null with errno = ENOMEM when they cannot be had. `Slow` is tail-called with the size when
// the fast path has nothing to give.
template <void* (*Slow)(usize) = allocate_slow>
FREESTONE_INLINE void* allocate(usize bytes) {
  Cache& cache = thread_cache();
  SizeClass size_class;
  if (FREESTONE_LIKELY(bytes <= kGranuleTableBytes)) {
    size_class = cache.class_of_granules[(bytes + kGranule - 1) / kGranule];
  } else if (bytes <= kCachedBytesMax) {
    size_class = class_above_fine(bytes);
  } else {
    return Slow(bytes);
  }
  void** top = cache.top[size_class];
  if (FREESTONE_UNLIKELY(top == cache.low[size_class])) return Slow(bytes);
  cache.top[size_class] = top - 1;
  return top[-1];
}

// Takes back what `allocate` gave. Null is fine.
FREESTONE_INLINE void deallocate(void* block) {
  const usize offset = address_of(block) - region.base;
  if (FREESTONE_UNLIKELY(offset >= region.window_bytes)) return deallocate_slow(block);
  const unsigned tag = tag_table()[offset >> kUnitShift];
  Cache& cache = thread_cache();
  void** top = cache.top[tag];
  if (FREESTONE_UNLIKELY(top == cache.high[tag])) return deallocate_slow(block);
  if constexpr (!kMitigations.any()) {
    if (FREESTONE_UNLIKELY(top[-1] == block)) return deallocate_slow(block);  // CACHE-4
  }
  cache.push(tag, top, block);
}

// Zeroed memory for `bytes`.
void* allocate_zeroed(usize bytes);
// At least `bytes` at a multiple of `alignment`, a power of two.
void* allocate_aligned(usize bytes, usize alignment);
// Changes the size; moves the block when it must. Null leaves the old block as it was.
void* reallocate(void* block, usize bytes);
// How many bytes the program may use. 0 for null; aborts for what is no block.
usize usable_bytes(const void* block);
// The least size of at least `bytes` at which all of a block is asked for: it costs what `bytes` costs, and is what it makes usable.
usize good_size(usize bytes);
// Gives back what is free: the calling thread's cache, dirty spans beyond `keep_bytes`, whole free pages in slabs.
// Returns whether anything was given.
bool trim(usize keep_bytes);

// lifecycle.cc
enum class Mode : u8 { fresh, active, disabled };
// Brings the allocator up if it is not; safe from any thread and from within ld.so.
Mode ensure_started();
Mode mode();
// The calling thread's cache, made if need be; null for a thread that has ended or when memory is out.
Cache* ensure_cache();

}  // namespace freestone
