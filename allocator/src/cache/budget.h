// Room 8, cache: how many bytes the arrays of a thread may hold. Any thread; no lock.
#pragma once

#include "base/atomic.h"
#include "base/bits.h"
#include "base/compiler.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "config/size_class.h"
#include "region/account.h"

namespace freestone {

// How often a class was found full after it was found empty, or empty after full. A program that grows or shrinks makes
// few such turns. A thread that passes its blocks on to others, or gets them from there, makes none: beside other
// threads each time counts.
struct Misses {
  static constexpr SizeClass kFirst = class_of(kCacheSmallBlockBytes) + 1;  // below, blocks are cheap
  u8 count : 7 = 0;
  bool full : 1 = false;  // the last time

  void note(bool now_full, bool beside_others) {
    if (now_full == full && !beside_others) return;
    if (count != 0x7f) ++count;
    full = now_full;
  }
  void halve() { count = count / 2 & 0x3f; }
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
// kCacheBytesTotal, and beyond a floor the sum of all caches against the size of the heap. For blocks that
// are `needed` (Cache::needs) the sum may be larger.
inline bool fits_budget(usize now, usize more, bool needed) {
  const usize bytes = now + more;
  if (bytes > options.cache_bytes) return false;
  const usize of_all = bytes * caches_in_use.load_relaxed();
  if (bytes <= kCacheBytesFloor / 4 || (bytes <= kCacheBytesFloor && of_all <= kMiB)) return true;
  if (of_all > kCacheBytesTotal) return false;
  return all_capacity_bytes.load_relaxed() + more <=
         min_of(kCacheBytesTotal, account.charged.load_relaxed() / (needed ? kCacheNeededDivisor : kCacheHeapDivisor));
}

}  // namespace freestone
