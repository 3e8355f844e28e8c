// Room 8, cache: how a cache begins, waits for the next thread, and ends; and what of it the child of a fork keeps.
//
// In the fast build a thread that ends parks its cache with the blocks and capacities in it; the next thread that
// starts takes it over and begins with what the last one learned. What no thread takes for the decay time goes
// back at a tick (slow.h), and all of it where memory is short or trimmed. In the hardened build a
// thread's blocks are checked at its end, on their way back to the slabs.
//
// PARK-1  A cache is in a parking place, or a thread works on it (Cache::worker), or both ended with a fork. It enters
//         and leaves its place under the registry's lock, so one thread only takes it.
#pragma once

#include "cache/registry.h"

namespace freestone {

// A cache for the calling thread, registered: a parked one or a new one; null when memory is out. A thread that ended
// without its destructors may have left a cache at the caller's address: its blocks go back.
Cache* create_cache();
// A parked cache, or a new one, for a thread that has none and parks it after one use.
Cache* borrow_cache();
// Called by a thread that ends: parks its cache, or destroys it where that would keep too much.
//
// CANCEL-1  A thread that ends holds no lock of the heap. One that was cancelled inside a call repairs its own work as
//           the child of a fork does. It loses what it had in hand, and its slab and the class that it was changing.
void park_cache(Cache& cache);
// Destroys the caches that have been parked for so long. What waits in their quarantine goes on waiting in that of the
// calling thread's cache `heir`, if there is one.
void release_parked_caches(u64 age_ms = 0, Cache* heir = nullptr);

struct ParkedCaches {
  usize caches;
  usize capacity_bytes;
};
ParkedCaches parked_caches();

// Whether a signal struck the calling thread where it held a lock or the cache was out of order. Its handler may not
// look at the heap then, not even in exit.
bool is_struck_at_work(const Cache* cache);

// In the child of a fork, the caches that were made before it are nobody's but for one: that of the thread that forked.
// Only this thread can tell which one it is: by adopt_cache, or because it has its process settled.
//
// Repairs what threads were changing at the fork: bins, tokens, the registry. `own` is the calling thread's cache, made
// before the fork, or null.
void repair_caches_in_child(Cache* own);
// Called by the thread that forked; `own` may be null. From then on the caches of the others may be drained. This and
// the repair draw the random numbers of the thread's own cache anew.
void adopt_cache(Cache* own);
// Gives back what is in the caches that are nobody's, except the class that each was changing. Called by a thread that
// holds no lock, beside other threads of the child; does nothing while another one is at it.
void drain_orphans_slow();
extern FREESTONE_HIDDEN Atomic<u8> has_orphans;  // release and acquire: which cache is no orphan
inline void drain_orphans(Cache& own) {
  if (FREESTONE_UNLIKELY(own.generation != process_generation())) adopt_cache(&own);
  if (FREESTONE_UNLIKELY(has_orphans.load_acquire() != 0)) drain_orphans_slow();
}

}  // namespace freestone
