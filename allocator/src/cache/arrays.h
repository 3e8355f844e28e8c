// Room 8, cache: the arrays of a cache: their size, what comes in and what goes back. The owning thread calls these in
// a slow path, inside Changing(cache, size_class) unless a function says otherwise.
#pragma once

#include "cache/counting.h"
#include "config/heuristics.h"

namespace freestone {

// Fast build: the process's first kCloseLooks frees above a mark, and then each class's first after a refill, look the
// block up in its slab and among the last that were freed: kLookPlaces of them at first, then kRunPlaces. A question
// for the size of a block does the same (TrustedBytes in front/heap.h). kRunPlaces is what a class above the slabs has
// at most, so each of its frees is looked up among all.
inline constexpr usize kRunPlaces = kCachedBytesMax / (kSmallBytesMax + 1) + 1;

// Called when a class was found empty or full: a larger array, if the budget has room for it. Returns its capacity.
unsigned grow(Cache& cache, SizeClass size_class, bool full);
// Lowers the capacity of a class; blocks that no longer fit go back to their slabs.
void shrink_to(Cache& cache, SizeClass size_class, unsigned capacity);
// Drops the array of a class that holds nothing.
void drop_array(Cache& cache, SizeClass size_class);
// Gives the oldest `count` blocks back. `wanted`: an array is full, so others of their kind are in use.
void flush(Cache& cache, SizeClass size_class, unsigned count, bool wanted = false);
// Adds up to `room` blocks, from threads that gave some away or a batch from the slabs; returns how many.
unsigned refill(Cache& cache, SizeClass size_class, unsigned room);
// Puts blocks of the class into its array, and what has no room there into the slabs.
void give_to_class(Cache& cache, SizeClass size_class, void* const* blocks, unsigned count);
// Gives back what lies in the arrays, and the arrays. The caller is at work on no class.
void flush_arrays(Cache& cache);

// Take and return blocks of a class for a user without a cache.
void* take_class_block(SizeClass size_class, SlabUser& user);
void return_class_blocks(SizeClass size_class, SlabUser& user, void* const* blocks, unsigned count,
                         bool wanted = false);
// Blocks of a class that are live or in a cache.
usize class_blocks_outside(SizeClass size_class);

// Fast build: how many looks the process has made, up to kCloseLooks. Relaxed: one more or less does not matter.
extern FREESTONE_HIDDEN Atomic<u32> looks_made;
FREESTONE_INLINE bool looks_closely() { return looks_made.load_relaxed() < kCloseLooks; }
// Fast build: raises the mark after a free was looked up, for `blocks` more at least. False: the array is full.
FREESTONE_INLINE bool raise_mark(Cache& cache, SizeClass size_class, unsigned blocks) {
  if (kChecksEveryCall || cache.counting != nullptr || cache.base[size_class] == nullptr) return false;
  const unsigned capacity = cache.capacity(size_class);
  const unsigned count = cache.count(size_class);
  FREESTONE_CHECK("CACHE-5", cache.high[size_class] <= cache.base[size_class] + capacity);
  cache.high[size_class] = cache.base[size_class] + (looks_closely() ? min_of(capacity, count + blocks) : capacity);
  return count != capacity;
}
// Whether the block is among the `count` blocks below `top`. Four at a time by their lower halves: in most cases none
// is.
FREESTONE_INLINE bool is_among(void* const* top, usize count, const void* block) {
  using Halves = u32 __attribute__((vector_size(16)));
  const auto low = static_cast<u32>(address_of(block));
  const Halves wanted = {low, low, low, low};
  Halves found = {};
  void* const* place = top;
  void* const* const end = top - count;
  const auto matches = [wanted](void* const* below) {
    Halves upper, lower;
    __builtin_memcpy(&upper, below - 2, sizeof upper);
    __builtin_memcpy(&lower, below - 4, sizeof lower);
    return static_cast<Halves>(__builtin_shufflevector(lower, upper, 0, 2, 4, 6) == wanted);
  };
  for (; place - end >= 16; place -= 16)
    found |= matches(place) | matches(place - 4) | matches(place - 8) | matches(place - 12);
  for (; place - end >= 4; place -= 4) found |= matches(place);
  const auto pairs = reinterpret_cast<unsigned long long __attribute__((vector_size(16)))>(found);
  if (FREESTONE_UNLIKELY((pairs[0] | pairs[1]) != 0)) place = top;
  while (place != end) {
    if (FREESTONE_UNLIKELY(*--place == block)) return true;
  }
  return false;
}
// Whether the block is among the last that the owning thread freed and has not handed out again. Looks at a few places,
// to cost little beside a `realloc`; for class runs these are all places.
bool was_just_freed_counted(const Cache& cache, SizeClass size_class, const void* block);
FREESTONE_INLINE bool was_just_freed(const Cache& cache, SizeClass size_class, const void* block) {
  if (FREESTONE_UNLIKELY(cache.counting != nullptr)) return was_just_freed_counted(cache, size_class, block);
  usize places = kRunPlaces;
  if (looks_closely()) looks_made.add_relaxed(1), places = kLookPlaces;
  return is_among(cache.top[size_class], min_of<usize>(cache.count(size_class), places), block);
}
// Debug: CACHE-1, CACHE-3 and CACHE-4.
bool cache_is_valid(const Cache& cache);

}  // namespace freestone
