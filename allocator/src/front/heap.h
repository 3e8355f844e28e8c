// Room 9, front: every fast path, in the order in which they run. The slow paths are in heap.cc and large.cc.
//
//   malloc(n)                      16 instructions on the hit path, 7 loads, 1 store (tests/golden counts them)
//     class of n                   a table for n <= 4 KiB; arithmetic on the highest bit up to 128 KiB
//     pop from the thread cache    touches the cache's line for the class and the array slot, not the block
//     `- allocate_slow             first call, low-water mark, refill from slabs, runs above 128 KiB
//   free(p)                        18 instructions, 10 loads, 2 stores
//     below the frontier?          one subtraction, one compare: rejects null, foreign and wild addresses
//     tag of the unit              one byte load: the class, or a tag whose cache entry is always full
//     on top of the array already? a free of what was freed last is a double free (fast build)
//     push to the thread cache     does not touch the block
//     `- deallocate_slow           full cache, runs, own mappings, null, bad pointers, double frees
#pragma once

#include <cstring>

#include "config/heuristics.h"
#include "front/thread_cache.h"
#include "region/region.h"

namespace freestone {

// Out of line: they handle what the fast path could not.
void* allocate_slow(usize bytes);
// From a class, when the allocator has started. With `zeroed`, prefers memory known to be zero; sets it to whether that
// is so.
void* allocate_class(SizeClass size_class, usize bytes, usize alignment, bool* zeroed = nullptr);
// A free that the fast path left: of an address outside the window, or in a unit with this tag.
void deallocate_outside(void* block) noexcept;
void deallocate_slow(void* block, usize tag) noexcept;
void* allocate_zeroed_slow(usize bytes);
void* allocate_aligned_slow(usize bytes, usize alignment);
usize usable_bytes_slow(const void* block);

// The top block of a class; tail-calls `miss` when the class has none above its mark.
template <typename Miss>
FREESTONE_INLINE void* pop(Cache& cache, SizeClass size_class, Miss miss) {
  void** top = cache.top[size_class];
  if (FREESTONE_UNLIKELY(top == cache.low[size_class])) return miss();
  cache.top[size_class] = top - 1;
  return top[-1];
}

// At least `bytes` bytes, aligned to 16; null with errno = ENOMEM when memory is out. `Slow` is tail-called with the
// size when the fast path has nothing to give.
template <void* (*Slow)(usize) = allocate_slow>
FREESTONE_INLINE void* allocate(usize bytes) {
  const auto miss = [=] { return Slow(bytes); };
  Cache& cache = thread_cache();
  if (FREESTONE_LIKELY(bytes <= kGranuleTableBytes))
    return pop(cache, cache.class_of_granules[(bytes + kGranule - 1) / kGranule].load_operand(), miss);
  return bytes <= kCachedBytesMax ? pop(cache, class_above_fine(bytes), miss) : miss();
}

// Calls `hit` with a cached block of at least `bytes` at a multiple of `below` + 1, a power of two; else `miss`. If a
// size is a multiple of the alignment, so are its class's blocks and the starts of slabs (see class_of_aligned). 0
// bytes miss.
template <typename Hit, typename Miss>
FREESTONE_INLINE auto pop_aligned(usize bytes, usize below, Hit hit, Miss miss) {
  usize last = bytes - 1;
  asm("" : "+r"(last));  // keeps `bytes` in its register: gcc would move it away
  last |= below;
  Cache& cache = thread_cache();
  SizeClass size_class;
  if (FREESTONE_LIKELY(last < kGranuleTableBytes)) {
    size_class = cache.class_of_granules[last / kGranule + 1].load_operand();
  } else if (last < kSmallBytesMax) {
    size_class = class_above_fine(last + 1);
  } else {
    return miss();
  }
  void** top = cache.top[size_class];
  if (FREESTONE_UNLIKELY(top == cache.low[size_class])) return miss();
  if (kSharesGround && FREESTONE_UNLIKELY((address_of(top[-1]) & below) != 0)) return miss();
  retreat(cache.top[size_class], top);
  return hit(top[-1]);
}

// At least `bytes` at a multiple of `alignment`, a power of two.
template <void* (*Slow)(usize, usize) = allocate_aligned_slow>
FREESTONE_INLINE void* allocate_aligned(usize bytes, usize alignment) {
  return pop_aligned(bytes, alignment - 1, [](void* block) { return block; }, [=] { return Slow(bytes, alignment); });
}

// Frees a block that `allocate` returned. `base` is the region's, or an address that is further below each block than
// the window is long. Tail-calls `outside` for what is not in the heap by this base, `Slow` for what else it leaves.
template <void (*Slow)(void*, usize) noexcept = deallocate_slow, typename Outside>
FREESTONE_INLINE void deallocate(void* block, usize base, Outside outside) {
  const usize offset = address_of(block) - base;
  if (FREESTONE_UNLIKELY(offset >= region.frontier_bytes.load_operand())) return outside();
  const usize tag = tag_at(base, offset);
  Cache& cache = thread_cache();
  void** top = cache.top[tag];
  if (FREESTONE_UNLIKELY(top == cache.high[tag])) return Slow(block, tag);
  if constexpr (!kChecksEveryCall) {
    if (FREESTONE_UNLIKELY(top[-1] == block)) return Slow(block, tag);  // CACHE-4
  }
  cache.push(tag, top, block);
}
// The same by the region's base; null does nothing.
FREESTONE_INLINE void deallocate(void* block) {
  deallocate(block, region.base, [=] { deallocate_outside(block); });
}

// Fast build: bytes of a block by tag, for calls that end there (`malloc_usable_size`, a `realloc` in place). 0: the
// call takes the slow path, which checks the address in the block's slab. It is 0 for a tag that is not a slab class,
// and for a class until kChecksForTrust calls were checked.
struct TrustedBytes {
  Atomic<u32> of[kTagCount];
  Atomic<u32> with_unused[kTagCount];  // the bytes and, above 16 bits, unused_most: one load reads both
  Atomic<u8> checks[kTagCount];  // relaxed, as `of`: one more or less does not matter

  void checked(SizeClass size_class) {
    const unsigned seen = checks[size_class].load_relaxed() + 1U;
    if (seen >= kChecksForTrust) {
      const u32 bytes = class_info(size_class).bytes;
      of[size_class].store_relaxed(bytes);
      with_unused[size_class].store_relaxed(static_cast<u32>(unused_most(bytes)) << 16 | bytes);
    } else {
      checks[size_class].store_relaxed(static_cast<u8>(seen));
    }
  }
};
extern FREESTONE_HIDDEN TrustedBytes trusted_bytes;

// The bytes of a block, by tag; 0 where the slow path must say (TrustedBytes).
struct BlockBytes {
  u32 of[kTagCount];

  constexpr BlockBytes() : of() {
    for (SizeClass c = 1; c <= kLastClass; ++c) of[c] = class_info(c).bytes;
  }
};
inline constexpr BlockBytes kBlockBytes;
FREESTONE_INLINE usize block_bytes_of(usize tag) {
  return kChecksEveryCall ? kBlockBytes.of[tag] : trusted_bytes.of[tag].load_operand();
}

// How many bytes the program may use. 0 for null; aborts for an address outside every block.
FREESTONE_INLINE usize usable_bytes(const void* block) {
  const usize offset = address_of(block) - region.base;
  if (FREESTONE_UNLIKELY(offset >= region.frontier_bytes.load_operand())) return usable_bytes_slow(block);
  const usize bytes = block_bytes_of(tag_at(region.base, offset));
  return FREESTONE_LIKELY(bytes != 0) ? bytes : usable_bytes_slow(block);
}

// Memory whose first `bytes` are zero, cleared or known to be so; the rest of the block may hold anything.
FREESTONE_INLINE void* allocate_zeroed(usize bytes) {
  const auto miss = [=] { return allocate_zeroed_slow(bytes); };
  Cache& cache = thread_cache();
  SizeClass size_class;
  if (FREESTONE_LIKELY(bytes <= kGranuleTableBytes)) {
    size_class = cache.class_of_granules[(bytes + kGranule - 1) / kGranule].load_operand();
  } else if (bytes <= kCachedBytesMax) {
    size_class = class_above_fine(bytes);
  } else {
    return miss();
  }
  void** top = cache.top[size_class];
  if (FREESTONE_UNLIKELY(top == cache.low[size_class])) return miss();
  cache.top[size_class] = top - 1;
  return std::memset(top[-1], 0, bytes);
}
// Whether a realloc leaves the block where it is, because it stays in use (stays_in). May return false negatives.
// Always false for 0 bytes, for null, for the block on top of the array, and in the hardened build.
FREESTONE_INLINE bool keeps_place(const void* block, usize bytes) {
  if constexpr (kChecksEveryCall) return false;
  const usize offset = address_of(block) - region.base;
  if (FREESTONE_UNLIKELY(offset >= region.frontier_bytes.load_operand())) return false;
  const usize tag = tag_at(region.base, offset);
  const u32 with_unused = trusted_bytes.with_unused[tag].load_operand();
  if (static_cast<u16>(with_unused) - bytes >= with_unused >> 16) return false;
  void* const* const top = thread_cache().top[tag];
  return top == nullptr || FREESTONE_LIKELY(top[-1] != block);  // CACHE-4
}
// Changes the size of a block; moves it when it must. Null leaves it as it was.
void* reallocate(void* block, usize bytes);
// The largest request served by the same block as `bytes` at a power of two.
usize good_size(usize bytes, usize alignment = 1);

// heaps/arena.cc: what concerns a block in a unit with the tag kTagHeapObject. If `holds` is false, the block is in no
// arena, and the other calls must not be made.
struct ArenaCalls {
  bool (*holds)(const void* block);
  void (*deallocate)(void* block);
  void* (*reallocate)(void* block, usize bytes);
  usize (*usable_bytes)(const void* block);
};
extern const ArenaCalls arena_calls;

// lifecycle.cc
enum class Mode : u8 { fresh, active, disabled };
extern FREESTONE_HIDDEN Atomic<Mode> current_mode;  // publishes the region and the options
inline Mode mode() { return current_mode.load_acquire(); }
// Starts the allocator if need be; safe from any thread and from within ld.so.
Mode ensure_started();

}  // namespace freestone
