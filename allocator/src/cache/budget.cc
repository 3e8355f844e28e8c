// Room 8, cache: see budget.h.

#include "cache/budget.h"

#include "base/bits.h"
#include "config/options.h"
#include "region/account.h"

namespace freestone {

// Read at every growth: not beside what changes often.
alignas(64) constinit Atomic<u32> caches_in_use;
alignas(64) constinit Atomic<usize> all_capacity_bytes;

unsigned first_capacity(const ClassInfo& info) {
  return static_cast<unsigned>(max_of<usize>(1, min_of<usize>(kCacheBlocksNeeded, 4 * kKiB / info.bytes)));
}

bool fits_budget(usize now, usize more, bool needed) {
  const usize bytes = now + more;
  if (bytes > options.cache_bytes) return false;
  if (bytes <= kCacheBytesFloor) return true;
  if (bytes * caches_in_use.load_relaxed() > kCacheBytesTotal) return false;
  return all_capacity_bytes.load_relaxed() + more <=
         min_of(kCacheBytesBeyond, account.charged.load_relaxed() / (needed ? kCacheNeededDivisor : kCacheHeapDivisor));
}

}  // namespace freestone
