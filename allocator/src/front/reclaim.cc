// Room 9, front: see reclaim.h.

#include "front/reclaim.h"

#include "base/places.h"
#include "cache/lifetime.h"
#include "cache/quarantine.h"
#include "cache/transfer.h"
#include "config/heuristics.h"
#include "front/hardening.h"
#include "front/sampled.h"
#include "platform/leaving.h"
#include "region/account.h"
#include "region/region.h"
#include "span/dedicated.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/run_store.h"

namespace freestone {

namespace {

Atomic<u64> last_walk_ms;  // relaxed, as the next: two threads may walk at once without harm
Atomic<usize> left_by_walk;
Atomic<u64> reclaims;  // relaxed: statistics
Atomic<u64> failed_allocations;

}  // namespace

// Turns this thread's cache, and what all threads keep in common, into free units.
static void empty_caches() {
  pressure_epoch.fetch_add_relaxed(1);
  if (const SampleObserver* observer = sample_observer.load_acquire(); observer != nullptr) observer->release_freed();
  if (Cache* cache = ensure_cache(); cache != nullptr) {
    cache->pressure_seen = pressure_epoch.load_relaxed();
    flush_all(*cache);
    release_parked_caches();
    drain_transfer(cache->user);
    // A program that keeps asking at its limit must not walk all slabs each time: a new walk finds more after a while,
    // or when as much came back to the slabs as a call takes, in a small heap as much as caches may hold.
    const u64 now = os::coarse_milliseconds();
    const usize worth = min_of(kPurgeBytesPerCall, units_to_bytes(committed_units()) / kCacheHeapDivisor);
    if (now - last_walk_ms.load_relaxed() >= kShortageEveryMs ||
        unused_slab_bytes() >= left_by_walk.load_relaxed() + worth) {
      purge_slabs(cache->user, WentBack::shortage);
      last_walk_ms.store_relaxed(now);
      left_by_walk.store_relaxed(unused_slab_bytes());
    }
  }
  flush_stored_runs();
}

usize give_back_everything() {
  const usize before = account.charged.load_relaxed();
  empty_caches();
  purge_spans(0, WentBack::shortage);
  unmap_stuck();
  const usize after = account.charged.load_relaxed();
  return before > after ? before - after : 0;
}

namespace {

// What may help a request that found no memory.
enum class Remedy {
  none,
  memory,  // the hard limit refuses: giving free memory back makes room
  units,   // the kernel refuses addresses: units in caches may serve
};

Remedy remedy_for(usize bytes) {
  const usize hard = account.hard.load_relaxed();
  if (bytes > hard) return Remedy::none;
  constexpr usize kTables = kMiB;  // what the heap needs beside the block when it grows
  if (hard - bytes < account.charged.load_relaxed() + kTables) return Remedy::memory;
  return bytes <= units_to_bytes(committed_units()) ? Remedy::units : Remedy::none;
}

// False when nothing that the heap keeps would help.
bool give_back_for(usize bytes) {
  const Remedy remedy = remedy_for(bytes);
  if (remedy == Remedy::none) return false;
  if (remedy == Remedy::memory) give_back_everything();
  if (remedy == Remedy::units) {
    empty_caches();
    release_dedicated();
    release_retired_runs();
  }
  reclaims.add_relaxed(1);
  return true;
}

}  // namespace

bool reclaim_memory(usize bytes, Shortage& shortage) {
  const bool gave_back_before = shortage.gave_back;
  shortage.gave_back = true;
  if (!gave_back_before && give_back_for(bytes)) return true;
  const OutOfMemoryHandler* handler = out_of_memory_handler();
  if (handler != nullptr && handler->ask(handler->context, bytes, shortage.asked++)) {
    give_back_for(bytes);  // what the program freed may lie in caches and slabs
    return true;
  }
  failed_allocations.add_relaxed(1);
  return false;
}

ReclaimCounts reclaim_counts() { return {reclaims.load_relaxed(), failed_allocations.load_relaxed()}; }

bool trim(usize keep_bytes) {
  usize given = 0;
  if constexpr (kChecksEveryCall) hardening_hooks.check_next_part();
  if (Cache* cache = ensure_cache(); cache != nullptr) {
    flush_all(*cache);
    release_parked_caches();
    drain_transfer(cache->user);
    given += purge_slabs(cache->user, WentBack::trim);
  }
  flush_stored_runs();
  given += purge_spans(keep_bytes, WentBack::trim);
  given += unmap_stuck();
  return given > 0 && !os::keeps_pages();  // what slabs gave up stayed
}

constinit Places reclaim_places = {&reclaims, &failed_allocations};

}  // namespace freestone
