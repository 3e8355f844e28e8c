// Room 8, cache: how many bytes the arrays of a thread may hold. Any thread; no lock.
#pragma once

#include "base/atomic.h"
#include "base/bits.h"
#include "base/compiler.h"
#include "config/options.h"
#include "config/size_class.h"
#include "region/account.h"

namespace freestone {

// How often a class was found full after it was found empty, or empty after full. A program that grows or shrinks makes
// few turns.
struct Turns {
  static constexpr u8 kCountMax = 0xff;
  static constexpr u8 kOften = 8;
  // Of smaller blocks a few are cheap.
  static constexpr SizeClass kFirst = class_of(256) + 1;
  // Odd: the class was found full the last time.
  u8 count = 0;

  void note(bool full) {
    if (full == (count % 2 != 0)) return;
    count = count == kCountMax ? kCountMax - 1 : static_cast<u8>(count + 1);
  }
  void halve() { count = static_cast<u8>(count / 4 * 2 + count % 2); }
};

// The caches of threads that live. Written under the registry's lock.
extern FREESTONE_HIDDEN Atomic<u32> caches_in_use;
// What the arrays of all caches may hold together. Relaxed.
extern FREESTONE_HIDDEN Atomic<usize> all_capacity_bytes;

// The first capacity of a class: one small array, so that a thread that allocates little stays small.
inline unsigned first_capacity(const ClassInfo& info) {
  return static_cast<unsigned>(max_of<usize>(1, min_of<usize>(kCacheBlocksNeeded, kCacheSmallNeeded / info.bytes)));
}

// Whether the arrays of a thread, which may hold `now` bytes, may hold `more`. Three bounds: its own, its share of
// kCacheBytesTotal, and beyond kCacheBytesFloor the sum of all caches against the size of the heap. For blocks that
// are `needed` (Cache::needs) the sum may be larger.
inline bool fits_budget(usize now, usize more, bool needed) {
  const usize bytes = now + more;
  if (bytes > options.cache_bytes) return false;
  if (bytes <= kCacheBytesFloor) return true;
  if (bytes * caches_in_use.load_relaxed() > kCacheBytesTotal) return false;
  return all_capacity_bytes.load_relaxed() + more <=
         min_of(kCacheBytesBeyond, account.charged.load_relaxed() / (needed ? kCacheNeededDivisor : kCacheHeapDivisor));
}

}  // namespace freestone
