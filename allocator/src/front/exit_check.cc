// Room 9, front: the fast build's check when the program ends. A second free, or a free of an address that is no
// block's start, is seen when the address leaves the thread's cache; addresses that never leave are checked here, in
// the cache of the thread that ends the process.
//
// It changes nothing, so other threads and later destructors can go on. It costs about 30 instructions for each cached
// block.

#include <cstring>

#include "base/bits.h"
#include "cache/lifetime.h"
#include "front/heap.h"
#include "platform/message.h"

namespace freestone {

namespace {

// Blocks by address.
class Seen {
 public:
  static constexpr usize kBlocksMax = 1024;

  // Call before adding `count` blocks of the next class, at most kBlocksMax: forgets earlier classes. Uses the end of
  // the table, as much as it needs, because the other end lies on pages of the stack that nobody has touched.
  void expect(usize count) {
    places_log_ = highest_bit(2 * count - 1) + 1;
    place_ = table_ + kSeenPlaces - places();
    std::memset(place_, 0, places() * sizeof *place_);
  }
  // False when it was there already.
  bool add(const void* block) {
    constexpr u64 kMultiplier = 0x9e37'79b9'7f4a'7c15;
    for (usize at = (address_of(block) * kMultiplier) >> (64 - places_log_);; at = (at + 1) % places()) {
      if (place_[at] == block) return false;
      if (place_[at] != nullptr) continue;
      place_[at] = block;
      return true;
    }
  }

 private:
  usize places() const { return usize{1} << places_log_; }

  static constexpr usize kSeenPlaces = 2 * kBlocksMax;
  const void* table_[kSeenPlaces];
  const void** place_ = nullptr;
  unsigned places_log_ = 0;
};

void check_class(Seen& seen, const Cache& cache, SizeClass c) {
  const usize count = cache.count(c);
  if (count == 0 || count > Seen::kBlocksMax) return;
  const usize bytes = class_info(c).bytes;
  seen.expect(count);
  for (void* const* at = cache.base[c]; at != cache.top[c]; ++at) {
    const SlabPlace place = place_in_slab(c, *at);
    if (FREESTONE_UNLIKELY(place == SlabPlace::no_block)) fail_block("invalid free", *at, facts_inside(c, *at));
    if (FREESTONE_UNLIKELY(place == SlabPlace::free_block || !seen.add(*at))) fail_block("double free", *at, bytes);
  }
}

// Runs after the program's own handlers, which still free.
__attribute__((destructor(101))) void on_exit() {
  if (kChecksEveryCall || mode() != Mode::active || !has_cache() || thread_cache().counting != nullptr) return;
  if (is_struck_at_work(&thread_cache())) return;
  Seen seen;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) check_class(seen, thread_cache(), c);
}

}  // namespace

}  // namespace freestone
