// Room 8, cache: see parking.h.

#include "cache/parking.h"

#include "base/check.h"
#include "cache/counting.h"
#include "config/options.h"
#include "platform/os.h"
#include "region/account.h"
#include "span/purge.h"

namespace freestone {

namespace {

// What the arrays of all parked caches may hold, beside a share of the heap: a few threads' that grew theirs.
constexpr usize kParkedBytes = kMiB;
constexpr usize kParkedHeapDivisor = 16;
constexpr unsigned kParkingPlaces = 16;

struct Place {
  Cache* cache = nullptr;
  u64 since_ms = 0;
};
Place places[kParkingPlaces] FREESTONE_GUARDED_BY(cache_registry_lock);
Atomic<u32> places_taken;  // a hint, written under the lock: a fork may come between a place and its count

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

// In the child of a fork all that was parked belongs to drain_orphans.
bool is_free_to_take(const Place& place) FREESTONE_REQUIRES(cache_registry_lock) {
  return place.cache != nullptr && place.cache->generation == process_generation();
}

bool park(Cache& cache) {
  LockGuard guard(cache_registry_lock);
  if (cache.generation != process_generation() || options.dirty_decay_ms == 0) return false;
  const usize most = min_of(kParkedBytes + account.charged.load_relaxed() / kParkedHeapDivisor, kCacheBytesTotal);
  if (parked_bytes() + cache.capacity_bytes > most) return false;
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

// A cache that was parked at least so long.
Cache* take_older(u64 age_ms) {
  if (!may_be_parked()) return nullptr;
  const u64 now = os::coarse_milliseconds();
  LockGuard guard(cache_registry_lock);
  for (Place& place : places) {
    if (is_free_to_take(place) && now - place.since_ms >= age_ms) return take_from(place);
  }
  return nullptr;
}

}  // namespace

void park_cache(Cache& cache) {
  // One that counts would hand out blocks uncounted before its new owner's first slow path.
  const bool counts = cache.counting != nullptr;
  const bool is_due = cache.pressure_seen != pressure_epoch.load_relaxed();
  if (!kHandsBlocksOn || counts || is_due) return destroy_cache(cache);
  release_held_run(cache.run);
  leave_transfer(cache);
  if (!park(cache)) destroy_cache(cache);
}

bool may_be_parked() { return places_taken.load_relaxed() != 0; }

Cache* take_parked_cache() {
  Place* latest = nullptr;
  for (Place& place : places) {
    if (is_free_to_take(place) && (latest == nullptr || place.since_ms >= latest->since_ms)) latest = &place;
  }
  return latest != nullptr ? take_from(*latest) : nullptr;
}

void unpark_orphan(const Cache& cache) {
  for (Place& place : places) {
    if (place.cache == &cache) empty(place);
  }
}

void release_parked_caches(u64 age_ms) {
  while (Cache* const cache = take_older(age_ms)) destroy_cache(*cache);
}

ParkedCaches parked_caches() {
  LockGuard guard(cache_registry_lock);
  usize caches = 0;
  for (const Place& place : places) caches += place.cache != nullptr ? 1 : 0;
  return {caches, parked_bytes()};
}

}  // namespace freestone
