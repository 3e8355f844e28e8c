// Room 8, cache: see tick.h.

#include "cache/tick.h"

#include "config/options.h"
#include "platform/os.h"
#include "span/purge.h"

namespace freestone {

bool tick_is_due() { return os::coarse_milliseconds() - last_tick_ms.load_relaxed() >= tick_ms(); }

void tick(Cache* cache) {
  release_parked_caches(options.dirty_decay_ms);
  decay_spans();
  give_back_cold(cache, true);
}

}  // namespace freestone
