// Room 8, cache: see lifetime.h.

#include "cache/lifetime.h"

#include <cstring>

#include "base/check.h"
#include "cache/arrays.h"
#include "cache/quarantine.h"
#include "cache/transfer.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "platform/os.h"
#include "region/account.h"
#include "region/metadata.h"
#include "slab/ground.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/span_heap.h"

namespace freestone {

constinit Atomic<u8> has_orphans;

namespace {

constinit Mutex orphans_lock{LockName::orphans};  // one thread at a time drains them; the others go on
Atomic<u32> next_shard;

constexpr unsigned kParkingPlaces = 16;

struct Place {
  Cache* cache = nullptr;
  u64 since_ms = 0;
};
Place places[kParkingPlaces] FREESTONE_GUARDED_BY(cache_registry_lock);
Atomic<u32> places_taken;  // a hint, written under the lock: a fork may come between a place and its count

// Destroyed caches. Their memory serves later caches only: another process that recalls caches may still write there
// (CachePlaces).
Cache* spare FREESTONE_GUARDED_BY(cache_registry_lock) = nullptr;

// Zeroed; null when the kernel refuses.
void* take_cache_memory() {
  {
    LockGuard guard(cache_registry_lock);
    if (Cache* const cache = spare; cache != nullptr) {
      spare = cache->next;
      return std::memset(static_cast<void*>(cache), 0, sizeof(Cache));
    }
  }
  return take_metadata(sizeof(Cache));
}

usize parked_bytes() FREESTONE_REQUIRES(cache_registry_lock) {
  usize bytes = 0;
  for (const Place& place : places) bytes += place.cache != nullptr ? place.cache->capacity_bytes : 0;
  return bytes;
}

void empty(Place& place) FREESTONE_REQUIRES(cache_registry_lock) {
  place.cache = nullptr;
  places_taken.sub_relaxed(1);
}

// The calling thread works on the cache from now on.
Cache* take_from(Place& place) FREESTONE_REQUIRES(cache_registry_lock) {
  Cache* const cache = place.cache;
  FREESTONE_CHECK("PARK-1", cache->worker.load_relaxed() == 0);
  set_worker(*cache, own_thread());
  empty(place);
  return cache;
}

// A cache that was parked, or a new one that nobody has seen.
void begin(Cache& cache) FREESTONE_REQUIRES(cache_registry_lock) {
  cache.generation = process_generation();
  cache.is_counted = true;
  caches_in_use.add_relaxed(1);
}

// Whether one other counts.
bool leaves_one(Cache& cache) {
  LockGuard guard(cache_registry_lock);
  if (!cache.is_counted) return false;
  cache.is_counted = false;
  return caches_in_use.fetch_add_relaxed(~u32{0}) == 2;
}

// The cache counts no longer as one in use, and if that leaves one, the transfer bins are emptied.
void leave_transfer(Cache& cache) {
  // For the thread that stays the bins are closed. Of two threads that end at once, one comes last.
  if (leaves_one(cache)) drain_transfer(cache.user);
}

// Flushes everything and gives the cache back. What waits in its quarantine goes on waiting in that of `heir`.
void destroy_cache(Cache& cache, Cache* heir = nullptr) {
  empty_quarantine(cache, heir);
  flush_arrays(cache);
  leave_transfer(cache);
  stop_counting(cache);
  all_capacity_bytes.sub_relaxed(cache.capacity_bytes);  // of a class that the child of a fork could not give back
  LockGuard guard(cache_registry_lock);
  leave_registry(cache);
  cache.next = spare;
  order_stores();  // FORK-3
  spare = &cache;
}

// The class that was being changed is left as it is: its blocks may be counted twice, or not at all.
void destroy_cut_short(Cache& cache) {
  if (const u8 c = cache.changing.load_relaxed(); c != 0) {
    cache.base[c] = cache.low[c] = cache.top[c] = cache.high[c] = nullptr;
    forget_queue(cache, c);
    if (cache.counting != nullptr) forget_counted(cache, c);
  }
  destroy_cache(cache);
}

// In the child of a fork all that was parked belongs to drain_orphans.
bool is_free_to_take(const Place& place) FREESTONE_REQUIRES(cache_registry_lock) {
  return place.cache != nullptr && place.cache->generation == process_generation();
}

bool park(Cache& cache) {
  LockGuard guard(cache_registry_lock);
  if (cache.generation != process_generation() || options.dirty_decay_ms == 0) return false;
  const usize most = min_of(kParkedBytes + account.charged.load_relaxed() / kCacheHeapDivisor, kCacheBytesTotal);
  if (cache.capacity_bytes != 0 && parked_bytes() + cache.capacity_bytes > most) return false;
  for (Place& place : places) {
    if (place.cache != nullptr) continue;
    place.since_ms = os::coarse_milliseconds();
    place.cache = &cache;
    places_taken.add_relaxed(1);
    set_worker(cache, 0);
    return true;
  }
  return false;
}

// A parked cache of this process, now the calling thread's; null if there is none.
Cache* take_over_parked() {
  if (places_taken.load_relaxed() == 0) return nullptr;
  LockGuard guard(cache_registry_lock);
  Place* latest = nullptr;
  for (Place& place : places) {
    if (is_free_to_take(place) && (latest == nullptr || place.since_ms >= latest->since_ms)) latest = &place;
  }
  if (latest == nullptr) return nullptr;
  Cache* const cache = take_from(*latest);
  begin(*cache);
  return cache;
}

// A cache that was parked at least so long.
Cache* take_older(u64 age_ms) {
  if (places_taken.load_relaxed() == 0) return nullptr;
  const u64 now = os::coarse_milliseconds();
  LockGuard guard(cache_registry_lock);
  for (Place& place : places) {
    if (is_free_to_take(place) && now - place.since_ms >= age_ms) return take_from(place);
  }
  return nullptr;
}

// The caller takes it apart.
Cache* take_orphan() {
  LockGuard guard(cache_registry_lock);
  Cache* const cache = find_orphan();
  if (cache == nullptr) return nullptr;
  set_worker(*cache, own_thread());
  for (Place& place : places) {
    if (place.cache == cache) empty(place);
  }
  return cache;
}

// In the child of a fork, by the thread whose cache it is: the child shall not draw what its parent and its siblings
// draw. Numbers begin anew. The blocks that each class hands out next, as many as are neighbours in random order,
// change places with others of its array. A class that interrupted code is changing stays as it is. A pop or a push
// that was interrupted does not see it (CACHE-2).
void renew_randomness(Cache& cache) {
  if constexpr (!kMitigations.random_order && !kMitigations.quarantine) return;
  u64 random = os::entropy();
  cache.user.random = next_mixed(random) | 1;
  if (!kMitigations.random_order || cache.counting != nullptr) return;
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    if (c == cache.changing.load_relaxed()) continue;
    const unsigned count = cache.count(c);
    for (unsigned left = count; left > 1 && left + kNeighboursMost > count; --left) {
      void*& next = cache.base[c][left - 1];
      void*& other = cache.base[c][next_mixed(random) % left];
      void* const block = next;
      next = other;
      other = block;
    }
  }
}

}  // namespace

Cache* create_cache() {
  while (Cache* const left = find_left_behind()) destroy_cut_short(*left);
  Cache* const cache = borrow_cache();
  if (cache != nullptr) cache->thread_id = os::thread_id();
  return cache;
}

Cache* borrow_cache() {
  if (Cache* const parked = take_over_parked(); parked != nullptr) return parked;
  auto* cache = static_cast<Cache*>(take_cache_memory());
  if (cache == nullptr) return nullptr;
  // As one copy, before another thread can see it.
  std::memcpy(static_cast<void*>(cache->class_of_granules), kClassOfGranules.of, sizeof kClassOfGranules.of);
  cache->user.shard = next_shard.fetch_add_relaxed(1) & (shard_count() - 1);
  cache->worker.store_relaxed(own_thread());
  cache->is_plain = true;
  cache->pressure_seen = pressure_epoch.load_relaxed();
  LockGuard guard(cache_registry_lock);
  begin_shard(cache->user.shard);
  begin(*cache);
  enter_registry(*cache);
  return cache;
}

static FREESTONE_SLOW FREESTONE_NO_ANALYSIS void destroy_struck(Cache& cache) {
  repair_metadata_in_child(Cut::cancellation);
  repair_spans_in_child(Cut::cancellation);
  repair_mappings_in_child(Cut::cancellation);
  repair_ground_in_child(Cut::cancellation);
  repair_transfer_in_child(Cut::cancellation);
  if (orphans_lock.is_mine()) orphans_lock.unlock();
  settle_struck_registry();
  cache.user.token.store_relaxed(kNoUnit);
  FREESTONE_CHECK("CANCEL-1", !is_struck_at_work(nullptr));
  destroy_cut_short(cache);
}

void park_cache(Cache& cache) {
  if (FREESTONE_UNLIKELY(is_struck_at_work(&cache))) return destroy_struck(cache);
  // One that counts would hand out blocks uncounted before its new owner's first slow path.
  const bool counts = cache.counting != nullptr;
  const bool is_due = cache.pressure_seen != pressure_epoch.load_relaxed();
  if (counts || is_due) return destroy_cache(cache);
  release_held_run(cache.run);
  leave_transfer(cache);
  if (park(cache)) return;
  if constexpr (kMitigations.quarantine) {  // the queues go on without the arrays
    flush_arrays(cache);
    if (park(cache)) return;
  }
  destroy_cache(cache);
}

void release_parked_caches(u64 age_ms, Cache* heir) {
  while (Cache* const cache = take_older(age_ms)) destroy_cache(*cache, heir);
}

ParkedCaches parked_caches() {
  LockGuard guard(cache_registry_lock);
  usize caches = 0;
  for (const Place& place : places) caches += place.cache != nullptr ? 1 : 0;
  return {caches, parked_bytes()};
}

bool is_struck_at_work(const Cache* cache) {
  const Mutex* const locks[] = {&span_lock, &growth_lock, &mapping_lock, &orphans_lock, &cache_registry_lock};
  for (const Mutex* lock : locks) {
    if (lock->is_mine()) return true;
  }
  return cache != nullptr && (cache->changing.load_relaxed() != 0 || cache->user.token.load_relaxed() != kNoUnit);
}

FREESTONE_SLOW void repair_caches_in_child(Cache* own) {
  forget_slab_purge();
  repair_ground_in_child();
  orphans_lock.reset_in_child();
  repair_registry_in_child(own);
  repair_trees_in_child();
  repair_transfer_in_child();
  if (own != nullptr) return adopt_cache(own);
  has_orphans.store_relaxed(0);
}

void adopt_cache(Cache* own) {
  if (own != nullptr && own->generation != process_generation()) {
    own->generation = process_generation();
    renew_randomness(*own);
  }
  has_orphans.store_release(1);
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void drain_orphans_slow() {  // the lock is taken or not
  if (!orphans_lock.try_lock()) return;
  while (Cache* const cache = take_orphan()) destroy_cut_short(*cache);
  has_orphans.store_release(0);
  orphans_lock.unlock();
}

}  // namespace freestone
