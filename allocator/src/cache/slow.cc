// Room 8, cache: see slow.h.

#include "cache/slow.h"

#include "base/check.h"
#include "base/stack_need.h"
#include "cache/arrays.h"
#include "cache/lifetime.h"
#include "cache/quarantine.h"
#include "cache/transfer.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "platform/message.h"
#include "platform/os.h"
#include "region/account.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/run_store.h"

namespace freestone {

namespace {

// Three quarters of the blocks not needed since the last adaptation go back. The capacity halves if half of it was not
// needed, or if the thread is over its budget.
FREESTONE_APART void adapt(Cache& cache) {
  cache.events = 0;
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    if (cache.base[c] == nullptr) continue;
    Changing changing(cache, c);
    const auto unused = static_cast<unsigned>(cache.low[c] - cache.base[c]);
    flush(cache, c, unused - unused / 4);
    const unsigned capacity = cache.capacity(c);
    if (unused >= capacity / 2 && cache.count(c) == 0) {
      drop_array(cache, c);
    } else if (capacity / 2 >= first_capacity(class_info(c)) &&
               (unused >= capacity / 2 || !fits_budget(cache.capacity_bytes, 0, cache.needs(c, capacity)))) {
      shrink_to(cache, c, capacity / 2);
    }
    cache.misses[c].halve();
    cache.low[c] = cache.top[c];
  }
  if (!cache.run.wanted) release_held_run(cache.run);
  cache.run.wanted = false;
}

FREESTONE_SLOW void answer_pressure(Cache& cache, u32 epoch) {
  cache.pressure_seen = epoch;
  flush_all(cache);
}

template <typename Work>
void with_user(Cache* cache, Work work) {
  if (cache != nullptr) return work(cache->user);
  Seated seated;
  work(seated.user());
}

void give_back_cold_for(SlabUser& user, Cache* cache, bool due) {
  if (!purge_cold_pages(user, due)) return;
  if (cache != nullptr) flush_arrays(*cache);
  release_stored_runs();
  purge_slabs(user, WentBack::slabs);
}

// A program that goes on with little must not keep what it needed before.
FREESTONE_APART void let_time_pass(Cache& cache) {
  if (FREESTONE_UNLIKELY(tick_is_due())) {
    tick(&cache);
  } else {
    give_back_cold(&cache, cache.events % kEventsPerLook == 0);
  }
  if (cache.events >= kEventsPerAdaptation) adapt(cache);
}

// Called at the end of each slow path, outside its class.
void note_event(Cache& cache) {
  drain_orphans(cache);
  __atomic_store_n(&cache.refills, cache.refills + 1, __ATOMIC_RELAXED);
  if (const u32 epoch = pressure_epoch.load_relaxed(); FREESTONE_UNLIKELY(epoch != cache.pressure_seen))
    answer_pressure(cache, epoch);
  if (++cache.events % kEventsPerClock == 0) let_time_pass(cache);
  attend();
}

}  // namespace

void tick(Cache* cache) {
  release_parked_caches(options.dirty_decay_ms, cache);
  if (cache_count() > 1) with_user(cache, [](SlabUser& user) { drain_transfer(user, false); });
  age_stored_runs();
  decay_spans();
  unmap_stuck();
  give_back_cold(cache, true);
  if (cache == nullptr) return;
  // Memory beyond the share must go with time, which only slow paths see: without arrays the thread meets one soon.
  if (keepable_units.load_relaxed() == 0 && cache->refills - cache->refills_at_tick < kFewRefills) flush_arrays(*cache);
  cache->refills_at_tick = cache->refills;
}

void give_back_cold(Cache* cache, bool due) {
  with_user(cache, [=](SlabUser& user) { give_back_cold_for(user, cache, due); });
}

void* pop_slow(Cache& cache, SizeClass c) {
  void* block;
  {
    Changing changing(cache, c);
    if (cache.count(c) > kept_for_counting(cache, c)) {
      if (cache.top[c] == cache.low[c]) cache.low[c] = cache.base[c] + cache.count(c) / 2;
      return *--cache.top[c];
    }
    const unsigned before = cache.capacity(c), have = cache.count(c);
    const bool was_full = cache.misses[c].full;
    const unsigned capacity = grow(cache, c, false);
    // A class that may not grow is filled by half, as it is emptied by half: frees and allocations in turn then rarely
    // meet either end. One that was found empty twice in turn, or full, is filled or emptied whole.
    const unsigned room = (capacity == before && was_full ? (before + 1) / 2 : capacity) - have;
    if (room == 0 && have == 0) return take_class_block(c, cache.user);
    if (refill(cache, c, room) + have == 0) return nullptr;
    block = *--cache.top[c];
    if constexpr (!kChecksEveryCall) cache.high[c] = cache.top[c];  // CACHE-5; counting.h opens it again
  }
  note_event(cache);
  return block;
}

void push_slow(Cache& cache, SizeClass c, void* block) {
  {
    Changing changing(cache, c);
    const unsigned before = cache.capacity(c);
    if (before - cache.count(c) > kept_for_counting(cache, c)) {
      cache.push(c, cache.top[c], block);
      return;
    }
    const bool was_full = cache.misses[c].full;
    const unsigned capacity = grow(cache, c, true);
    if (capacity == 0) return return_class_blocks(c, cache.user, &block, 1, true);
    if (capacity == before) flush(cache, c, was_full ? cache.count(c) : (capacity + 1) / 2, true);
    cache.push(c, cache.top[c], block);
    if (looks_closely()) raise_mark(cache, c, 0);  // else it is at the end
  }
  note_event(cache);
}

FREESTONE_SLOW void put_in_quarantine_full(Cache& cache, SizeClass c, void* block) {
  need_stack();
  put_in_full_queue(cache, c, block);
  note_event(cache);
}

void* take_one(SizeClass size_class, u64& random) {
  Seated seated;
  seated.user().random = random;
  void* block = take_class_block(size_class, seated.user());
  random = seated.user().random;
  return block;
}

void return_one(SizeClass size_class, void* block) {
  Cache* const lent = kMitigations.quarantine && is_slab_class(size_class) ? borrow_cache() : nullptr;
  if (lent != nullptr) {
    put_in_queue(*lent, size_class, block);
    return park_cache(*lent);
  }
  Seated seated;
  return_class_blocks(size_class, seated.user(), &block, 1);
}

}  // namespace freestone
