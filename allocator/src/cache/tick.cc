// Room 8, cache: see tick.h.

#include "cache/tick.h"

#include "config/options.h"
#include "platform/os.h"
#include "span/purge.h"

namespace freestone {

// A thread with fewer between two ticks may go on without any.
static constexpr u64 kFewRefills = 256;

bool tick_is_due() { return os::coarse_milliseconds() - last_tick_ms.load_relaxed() >= tick_ms(); }

void tick(Cache* cache) {
  release_parked_caches(options.dirty_decay_ms);
  decay_spans();
  give_back_cold(cache, true);
  if (cache == nullptr) return;
  // The law keeps more than its share, of which time makes less; what the arrays answer would not see it pass.
  if (keepable_units.load_relaxed() == 0 && cache->refills - cache->refills_at_tick < kFewRefills) flush_arrays(*cache);
  cache->refills_at_tick = cache->refills;
}

}  // namespace freestone
