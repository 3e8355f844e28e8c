// Room 8, cache: the one place where time passes.
//
// A slow path asks tick_is_due, which is a look at the coarse clock; the half-life of the law of retention has
// kTicksPerHalfLife ticks. A tick gives back what time made superfluous, in this order: parked caches, runs that wait,
// free units, pages inside slabs. While more must go, a thread with few refills loses its arrays, so it comes back.
// Any thread may call it that holds no lock and is at work on no class.
#pragma once

#include "cache/cache.h"

namespace freestone {

bool tick_is_due();
// `cache` is the calling thread's; null if it has none.
void tick(Cache* cache);

}  // namespace freestone
