// Room 8, cache: caches that outlive their threads, in the fast build. A thread that ends parks its cache with the
// blocks and capacities in it; the next thread that starts takes it over, so it meets what the last one learned. What
// nobody takes for a half-life of the law of retention goes back (tick.h), and all of it where memory is short or
// trimmed. In the hardened build a thread's blocks are checked at its end, on their way back to the slabs.
//
// PARK-1  A cache is in a parking place, or a thread works on it (Cache::worker), or both ended with a fork. It enters
//         and leaves its place under the registry's lock, so one thread only takes it.
#pragma once

#include "cache/cache.h"

namespace freestone {

// Called by a thread that ends: parks its cache, or destroys it where that would keep too much.
void park_cache(Cache& cache);
// Whether it is worth the lock to look for one.
bool may_be_parked();
// A parked cache of this process, now the calling thread's; null if there is none. The registry's lock is held.
Cache* take_parked_cache() FREESTONE_REQUIRES(cache_registry_lock);
// A cache of a parent, which somebody is about to destroy, leaves its place.
void unpark_orphan(const Cache& cache) FREESTONE_REQUIRES(cache_registry_lock);

struct ParkedCaches {
  usize caches;
  usize capacity_bytes;
};
ParkedCaches parked_caches();

}  // namespace freestone
