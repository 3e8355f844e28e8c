// Room 8, cache: see registry.h.

#include "cache/registry.h"

#include "cache/arrays.h"
#include "cache/transfer.h"
#include "config/heuristics.h"
#include "span/span_heap.h"

namespace freestone {

constinit Mutex cache_registry_lock{LockName::cache_registry};

namespace {

// The registry: all caches by worker, in chains of `next`. FORK-3: each chain is whole at every instruction; only the
// cache that `moving` names may be in none.
constexpr unsigned kChains = 64;
Cache* chains[kChains] FREESTONE_GUARDED_BY(cache_registry_lock) = {};
Cache* moving FREESTONE_GUARDED_BY(cache_registry_lock) = nullptr;

// Threads' addresses differ by their stacks' sizes, multiples of a page.
Cache*& chain_of(usize worker) FREESTONE_REQUIRES(cache_registry_lock) {
  return chains[(worker * 0x9e3779b97f4a7c15) >> 58];
}
static_assert(kChains == 1 << (64 - 58));

// The first cache of which visit(cache) is true.
template <typename Visit>
Cache* find_cache(Visit visit) FREESTONE_REQUIRES(cache_registry_lock) {
  for (Cache* const first : chains) {
    for (Cache* cache = first; cache != nullptr; cache = cache->next) {
      if (visit(*cache)) return cache;
    }
  }
  return nullptr;
}

template <typename Visit>
void for_each_registered(Visit visit) FREESTONE_REQUIRES(cache_registry_lock) {
  find_cache([&](Cache& cache) {
    visit(cache);
    return false;
  });
}

// The shard of the main thread is as good as any.
struct alignas(64) Seat {
  Atomic<usize> owner;  // its own_thread(); 0: free
  SlabUser user;
};
constinit Seat seats[16];

// Empty if its owner begins or empties it at this moment.
[[maybe_unused]] FREESTONE_RACES inline Queue seen_queue(const Queue& queue) {
  void** const base = __atomic_load_n(&queue.base, __ATOMIC_ACQUIRE);
  const Queue seen = queue;
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  if (base == nullptr || base != seen.base || base != __atomic_load_n(&queue.base, __ATOMIC_RELAXED)) return {};
  FREESTONE_CHECK("QUEUE-2", seen.pool != 0 && seen.ring != 0);
  return seen;
}
[[maybe_unused]] void** seen_top(const Queue& seen, void** const& top) {
  void** const now = __atomic_load_n(&top, __ATOMIC_RELAXED);
  return seen.base <= now && now <= seen.end() ? now : seen.base;
}

}  // namespace

void enter_registry(Cache& cache) {
  Cache*& first = chain_of(cache.worker.load_relaxed());
  cache.next = first;
  order_stores();
  first = &cache;
}

void leave_registry(Cache& cache) {
  for (Cache** place = &chain_of(cache.worker.load_relaxed()); *place != nullptr; place = &(*place)->next) {
    if (*place != &cache) continue;
    *place = cache.next;
    return;
  }
}

void set_worker(Cache& cache, usize worker) {
  moving = &cache;
  order_stores();
  leave_registry(cache);
  cache.worker.store_relaxed(worker);
  enter_registry(cache);
  order_stores();
  moving = nullptr;
}

Cache* find_orphan() { return find_cache(is_orphan); }

Cache* find_left_behind() {
  LockGuard guard(cache_registry_lock);
  Cache* cache = chain_of(own_thread());
  while (cache != nullptr && (cache->worker.load_relaxed() != own_thread() || !cache->is_counted || is_orphan(*cache)))
    cache = cache->next;
  return cache;
}

Seated::Seated() {
  settle_child();
  for (seat_ = 0;; seat_ = (seat_ + 1) % (sizeof seats / sizeof *seats)) {
    usize nobody = 0;
    Seat& seat = seats[seat_];
    if (seat.owner.load_relaxed() == 0 && seat.owner.replace_acquire(nobody, own_thread())) return;
    cpu_relax();
  }
}
Seated::~Seated() { seats[seat_].owner.store_release(0); }
SlabUser& Seated::user() { return seats[seat_].user; }

FREESTONE_SLOW void count_cached(usize (&blocks)[kClassEnd]) {
  for (usize& b : blocks) b = 0;
  LockGuard guard(cache_registry_lock);
  for_each_registered([&](const Cache& cache) {
    for (SizeClass c = 1; c < kClassEnd; ++c) blocks[c] += seen_blocks(cache, c).count();
    cache.quarantine.for_each([&](SizeClass c, const Queue& queue, void** const& top) {
      const Queue seen = seen_queue(queue);
      blocks[c] += seen.held + static_cast<usize>(seen_top(seen, top) - seen.base);
    });
  });
  count_transfer(blocks);
}

FREESTONE_SLOW void for_each_cache(void (*visit)(void* context, const Cache& cache, usize cached_bytes),
                                   void* context) {
  LockGuard guard(cache_registry_lock);
  for_each_registered([&](const Cache& cache) {
    if (cache.worker.load_relaxed() == 0) return;
    usize bytes = 0;
    for (SizeClass c = 1; c < kClassEnd; ++c) bytes += usize{seen_blocks(cache, c).count()} * class_info(c).bytes;
    visit(context, cache, bytes);
  });
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void recall_caches() {  // the lock is taken or not
  if (!cache_registry_lock.try_lock()) return;
  for_each_registered([](Cache& cache) {
    for (Atomic<u8>& entry : cache.class_of_granules) entry.store_relaxed(kCountedEntry);
    cache.recalled.store_release(1);
  });
  cache_registry_lock.unlock();
}

extern "C" FREESTONE_EXPORT constexpr CachePlaces freestone_caches = {chains, kChains};

RunCounts held_runs() {
  RunCounts held{};
  LockGuard guard(cache_registry_lock);
  for_each_registered([&](const Cache& cache) {
    const usize units = cache.run.units.load_relaxed();
    held.runs += units != 0 ? 1 : 0;
    held.bytes += units_to_bytes(units);
  });
  return held;
}

FREESTONE_SLOW usize copy_cached_blocks(void** out, usize room) {
  usize copied = 0;
  const auto copy = [&](const SeenBlocks& seen) {
    for (void** from = seen.base; from < seen.poppable && copied < room; ++from) out[copied++] = *from;
    for (void** from = seen.border; from < seen.top && copied < room; ++from) out[copied++] = *from;
  };
  LockGuard guard(cache_registry_lock);
  for_each_registered([&](const Cache& cache) {
    for (SizeClass c = 1; c < kClassEnd; ++c) copy(seen_blocks(cache, c));
    cache.quarantine.for_each([&](SizeClass, const Queue& queue, void** const& top) {
      const Queue seen = seen_queue(queue);
      void** const seen_to = seen_top(seen, top);
      copy({seen.base, seen_to, seen_to, seen_to});
      for (void** from = seen.end(); from != seen.behind() && copied < room; ++from) {
        if (*from != nullptr) out[copied++] = *from;
      }
    });
  });
  return copied + copy_transfer_blocks(out + copied, room - copied);
}

FREESTONE_SLOW bool caches_are_valid() {
  LockGuard guard(cache_registry_lock);
  return find_cache([](const Cache& cache) {
           return !is_orphan(cache) && cache.counting == nullptr && !cache_is_valid(cache);
         }) == nullptr;
}

static void finish_moving() FREESTONE_REQUIRES(cache_registry_lock) {
  if (moving == nullptr) return;
  leave_registry(*moving);
  enter_registry(*moving);
  moving = nullptr;
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void settle_struck_registry() {
  for (Seat& seat : seats) {
    if (seat.owner.load_relaxed() != own_thread()) continue;
    seat.user.token.store_relaxed(kNoUnit);
    seat.owner.store_release(0);
  }
  if (cache_registry_lock.is_mine()) finish_moving(), cache_registry_lock.unlock();
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void repair_registry_in_child(const Cache* own) {  // the lock is seized or not
  const bool cut_short = cache_registry_lock.seize_in_child();
  const auto repair_user = [own](SlabUser& user) {
    const UnitIndex token = user.token.load_relaxed();
    if (own == nullptr || token != own->user.token.load_relaxed()) repair_slab_in_child(token);
    user.token.store_relaxed(kNoUnit);
  };
  if (cut_short) finish_moving();
  u32 count = 0;
  for_each_registered([&](Cache& cache) {
    count += cache.is_counted ? 1 : 0;
    if (&cache == own) return;
    if (cache.worker.load_relaxed() == own_thread()) {
      cache.generation = process_generation();  // the interrupted code of this thread makes it or takes it apart
    } else {
      repair_user(cache.user);
    }
  });
  for (Seat& seat : seats) {
    if (seat.owner.load_relaxed() == 0 || seat.owner.load_relaxed() == own_thread()) continue;
    repair_user(seat.user);
    seat.owner.store_relaxed(0);
  }
  if (cut_short) {
    caches_in_use.store_relaxed(count);
    cache_registry_lock.unlock();
  }
}

}  // namespace freestone
