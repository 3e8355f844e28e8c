// Room 8, cache: see cache.h.

#include "cache/cache.h"

#include <cstring>

#include "base/check.h"
#include "cache/changing.h"
#include "cache/class_run.h"
#include "cache/counting.h"
#include "cache/parking.h"
#include "cache/tick.h"
#include "cache/transfer.h"
#include "config/options.h"
#include "platform/child.h"
#include "platform/message.h"
#include "platform/os.h"
#include "region/account.h"
#include "region/metadata.h"
#include "span/purge.h"

namespace freestone {

constinit Mutex cache_registry_lock{LockName::cache_registry};
constinit TrustedBytes trusted_bytes;
constinit Atomic<u32> looks_made;
// Written under the registry's lock. Read at every growth: not beside what changes often.
alignas(64) constinit Atomic<u32> caches_in_use;
constinit Atomic<u8> has_orphans;

namespace {

constinit Mutex orphans_lock{LockName::orphans};  // one thread at a time drains them; the others go on

// The registry: all caches by worker, in chains of `next`. FORK-3: each chain is whole at every instruction; only the
// cache that `moving` names may be in none.
constexpr unsigned kChains = 64;
Cache* chains[kChains] FREESTONE_GUARDED_BY(cache_registry_lock) = {};
Cache* moving FREESTONE_GUARDED_BY(cache_registry_lock) = nullptr;
Atomic<u32> next_shard;
alignas(64) Atomic<usize> all_capacity_bytes;  // relaxed: the sum over all caches

// While the thread that forked has not adopted its own, it is unknown which caches are orphans.
bool is_orphan(const Cache& cache) { return cache.generation != process_generation(); }

// Threads' addresses differ by their stacks' sizes, multiples of a page.
Cache*& chain_of(usize worker) FREESTONE_REQUIRES(cache_registry_lock) {
  return chains[(worker * 0x9e3779b97f4a7c15) >> 58];
}
static_assert(kChains == 1 << (64 - 58));

void enter_registry(Cache& cache) FREESTONE_REQUIRES(cache_registry_lock) {
  Cache*& first = chain_of(cache.worker.load_relaxed());
  cache.next = first;
  order_stores();
  first = &cache;
}

// Nothing happens if it is not there.
void leave_registry(Cache& cache) FREESTONE_REQUIRES(cache_registry_lock) {
  for (Cache** place = &chain_of(cache.worker.load_relaxed()); *place != nullptr; place = &(*place)->next) {
    if (*place != &cache) continue;
    *place = cache.next;
    return;
  }
}

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

// Threads without a cache take a seat: the child of a fork repairs what they hold, too. The shard of the main thread is
// as good as any.
struct alignas(64) Seat {
  Atomic<usize> owner;  // its own_thread(); 0: free
  SlabUser user;
};
constinit Seat seats[16];

class Seated {
 public:
  Seated() {
    settle_child();
    for (unsigned k = 0;; k = (k + 1) % (sizeof seats / sizeof *seats)) {
      usize nobody = 0;
      seat_ = &seats[k];
      if (seat_->owner.load_relaxed() == 0 && seat_->owner.replace_acquire(nobody, own_thread())) return;
      cpu_relax();
    }
  }
  ~Seated() { seat_->owner.store_release(0); }
  Seated(const Seated&) = delete;
  Seated& operator=(const Seated&) = delete;
  SlabUser& user() { return seat_->user; }

 private:
  Seat* seat_;
};

constexpr u32 kEventsPerAdaptation = 1024;
constexpr u32 kEventsPerClock = 8;

// The first capacity of a class: one small array, so that a thread that allocates little stays small.
unsigned first_capacity(const ClassInfo& info) {
  return static_cast<unsigned>(max_of<usize>(1, min_of<usize>(7, 4 * kKiB / info.bytes)));
}

// Whether the arrays of a thread may hold `more`. Three bounds: its own, its share of kCacheBytesTotal, and beyond
// kCacheBytesSmall the sum of all caches against the size of the heap. A class that `turns` may have more: its blocks
// would else lie free in slabs, and each would be a miss.
bool fits_budget(const Cache& cache, usize more, bool turns) {
  const usize bytes = cache.capacity_bytes + more;
  if (bytes > (turns ? options.cache_bytes : min_of(options.cache_bytes, kCacheBytesCommon))) return false;
  if (bytes <= kCacheBytesFloor) return true;
  if (bytes * caches_in_use.load_relaxed() > kCacheBytesTotal) return false;
  if (bytes <= kCacheBytesSmall) return true;
  return all_capacity_bytes.load_relaxed() + more <=
         min_of(kCacheBytesBeyond, account.charged.load_relaxed() / (turns ? kCacheTurnsDivisor : kCacheHeapDivisor));
}

// The metadata room rounds to powers of two: a capacity between two of them needs no new array.
usize array_bytes(unsigned capacity) { return max_of<usize>(kMetadataPieceMin, (1 + usize{capacity}) * sizeof(void*)); }

void** take_array(unsigned capacity) {
  auto** piece = static_cast<void**>(take_metadata(array_bytes(capacity)));
  return piece != nullptr ? piece + 1 : nullptr;
}
void return_array(void** array, unsigned capacity) { return_metadata(array - 1, array_bytes(capacity)); }

void set_capacity(Cache& cache, SizeClass c, unsigned capacity) {
  const usize change = (usize{capacity} - cache.capacity(c)) * class_info(c).bytes;  // modulo 2^64
  cache.capacity_bytes += change;
  all_capacity_bytes.add_relaxed(change);
  cache.base[c][-1] = reinterpret_cast<void*>(usize{capacity});
  cache.high[c] = cache.base[c] + capacity;
  FREESTONE_CHECK("CACHE-3", static_cast<std::ptrdiff_t>(change) <= 0 || cache.capacity_bytes <= options.cache_bytes);
}

// `wanted`: an array is full, so others of their kind are in use.
void return_class_blocks(SizeClass c, SlabUser& user, void* const* blocks, unsigned count, bool wanted = false) {
  if (is_slab_class(c)) return return_blocks(c, user, blocks, count);
  return_class_runs(c, user.shard, blocks, count, wanted);
}

// A single thread gains nothing.
bool uses_transfer(SizeClass c) { return kHandsBlocksOn && is_slab_class(c) && caches_in_use.load_relaxed() > 1; }

// Gives the oldest `count` blocks back.
void flush(Cache& cache, SizeClass c, unsigned count, bool others_may_want_them = false) {
  if (count == 0) return;
  void** base = cache.base[c];
  const unsigned left = cache.count(c) - count;
  const unsigned given =
      others_may_want_them && uses_transfer(c) ? give_to_transfer(c, cache.user.shard, base, count) : 0;
  if (given < count) return_class_blocks(c, cache.user, base + given, count - given, others_may_want_them);
  std::memmove(base, base + count, left * sizeof(void*));
  cache.top[c] = base + left;
  const auto low = static_cast<unsigned>(cache.low[c] - base);
  cache.low[c] = base + (low > count ? low - count : 0);
}

// Drops the array of a class that holds nothing.
void drop_array(Cache& cache, SizeClass c) {
  const unsigned capacity = cache.capacity(c);
  if (capacity == 0) return;
  void** array = cache.base[c];
  set_capacity(cache, c, 0);
  cache.base[c] = cache.low[c] = cache.top[c] = cache.high[c] = nullptr;
  return_array(array, capacity);
}

// Gives the array of a class another size, at least its count; false when memory is out.
FREESTONE_APART bool exchange_array(Cache& cache, SizeClass c, unsigned capacity) {
  const unsigned old = cache.capacity(c);
  if (old == 0 || array_bytes(capacity) != array_bytes(old)) {
    void** array = take_array(capacity);
    if (array == nullptr) return false;
    void** old_array = cache.base[c];
    const usize count = cache.count(c);
    const usize low = static_cast<usize>(cache.low[c] - old_array);
    if (count > 0) std::memcpy(array, old_array, count * sizeof(void*));
    array[-1] = reinterpret_cast<void*>(usize{old});  // CACHE-4
    cache.base[c] = array;
    cache.low[c] = array + low;
    cache.top[c] = array + count;
    if (old > 0) return_array(old_array, old);
  }
  set_capacity(cache, c, capacity);
  return true;
}

// Lowers the capacity of a class; what does not fit goes back.
void shrink_to(Cache& cache, SizeClass c, unsigned capacity) {
  if (cache.count(c) > capacity) flush(cache, c, cache.count(c) - capacity);
  if (capacity == 0) {
    drop_array(cache, c);
  } else {
    exchange_array(cache, c, capacity);
  }
}

// Called when a class was found empty or full; inside Changing(cache, c).
FREESTONE_INLINE void grow(Cache& cache, SizeClass c, bool full) {
  const ClassInfo& info = class_info(c);
  const unsigned old = cache.capacity(c);
  if (c >= Turns::kFirst) cache.turns[c - Turns::kFirst].note(full);
  const unsigned wanted = old == 0 ? first_capacity(info) : min_of<unsigned>(old * 2 + 1, info.cap_max);
  if (wanted <= old) return;
  if (fits_budget(cache, usize{wanted - old} * info.bytes, cache.turns_often(c))) exchange_array(cache, c, wanted);
}

// Of what was not needed since the last adaptation three quarters go back. The capacity halves if half of it was not
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
               (unused >= capacity / 2 || !fits_budget(cache, 0, cache.turns_often(c)))) {
      shrink_to(cache, c, capacity / 2);
    }
    if (c >= Turns::kFirst) cache.turns[c - Turns::kFirst].halve();
    cache.low[c] = cache.top[c];
  }
  shrink_idle_queues(cache);
  if (!cache.run.wanted) release_held_run(cache.run);
  cache.run.wanted = false;
  drain_unused_transfer(cache.user);
}

FREESTONE_SLOW void answer_pressure(Cache& cache, u32 epoch) {
  cache.pressure_seen = epoch;
  flush_all(cache);
}

// The caller takes it apart.
Cache* take_orphan() {
  LockGuard guard(cache_registry_lock);
  Cache* const cache = find_cache(is_orphan);
  if (cache == nullptr) return nullptr;
  set_worker(*cache, own_thread());
  unpark_orphan(*cache);
  return cache;
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

// Another thread's at the caller's address, for a caller without a cache: that thread is dead.
Cache* find_left_behind() {
  LockGuard guard(cache_registry_lock);
  Cache* cache = chain_of(own_thread());
  while (cache != nullptr && (cache->worker.load_relaxed() != own_thread() || !cache->is_counted || is_orphan(*cache)))
    cache = cache->next;
  return cache;
}

// A cache that was parked, or a new one that nobody has seen.
void begin(Cache& cache) FREESTONE_REQUIRES(cache_registry_lock) {
  cache.thread_id = os::thread_id();
  cache.generation = process_generation();
  cache.is_counted = true;
  caches_in_use.add_relaxed(1);
}

Cache* take_over_parked() {
  if (!may_be_parked()) return nullptr;
  LockGuard guard(cache_registry_lock);
  Cache* const cache = take_parked_cache();
  if (cache != nullptr) begin(*cache);
  return cache;
}

// No bitmap offers them.
[[maybe_unused]] bool are_in_use(SizeClass c, void* const* blocks, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (is_slab_class(c) ? place_in_slab(c, blocks[i]) != SlabPlace::used_block
                         : address_of(blocks[i]) % kUnitBytes != 0)
      return false;
  }
  return true;
}

void* take_class_block(SizeClass c, SlabUser& user) {
  bool zeroed;
  if (!is_slab_class(c)) return take_class_run(c, user.shard, zeroed);
  void* block = nullptr;
  return take_blocks(c, user, 1, 1, &block) == 1 ? block : nullptr;
}

}  // namespace

void note_event(Cache& cache) {
  drain_orphans(cache);
  __atomic_store_n(&cache.refills, cache.refills + 1, __ATOMIC_RELAXED);
  if (const u32 epoch = pressure_epoch.load_relaxed(); FREESTONE_UNLIKELY(epoch != cache.pressure_seen))
    answer_pressure(cache, epoch);
  ++cache.events;
  // A program that goes on with little must not keep what it needed before.
  if (cache.events % kEventsPerClock == 0 && FREESTONE_UNLIKELY(tick_is_due())) {
    tick(&cache);
  } else {
    give_back_cold(&cache, look_is_due(cache.events));
  }
  if (cache.events >= kEventsPerAdaptation) adapt(cache);
  attend();
}

void give_to_class(Cache& cache, SizeClass c, void* const* blocks, unsigned count) {
  const auto room = [&] {
    const unsigned left = cache.capacity(c) - cache.count(c);
    return left - min_of(left, kept_for_counting(cache, c));
  };
  for (unsigned before = ~0U; room() < count && cache.capacity(c) != before;) {
    before = cache.capacity(c);
    grow(cache, c, true);
  }
  // The oldest go first: each block meets its slab, which looks at it.
  if (room() < count) flush(cache, c, min_of(count - room(), cache.count(c)), true);
  const unsigned given = min_of(room(), count);
  if (given > 0) std::memcpy(cache.top[c], blocks, given * sizeof(void*));
  cache.top[c] += given;
  if (given < count) return_class_blocks(c, cache.user, blocks + given, count - given, true);
}

bool Allowance::take_slow(usize bytes) {
  const u64 rate = options.hardening_rate;
  if (rate == 0) {
    refusals = 0;
    return true;
  }
  const u64 now = os::coarse_milliseconds();
  const u64 earned = last_ms == 0 ? 0 : (now - last_ms) * rate;
  last_ms = now;
  spent -= min_of<u64>(spent, earned);
  if (spent + bytes > kAllowanceStock) return false;
  spent += bytes;
  return true;
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

Cache* create_cache() {
  while (Cache* const left = find_left_behind()) destroy_cut_short(*left);
  if (Cache* const parked = take_over_parked(); parked != nullptr) return parked;
  auto* cache = static_cast<Cache*>(take_metadata(sizeof(Cache)));
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

void flush_arrays(Cache& cache) {
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    if (cache.base[c] == nullptr) continue;
    Changing changing(cache, c);
    flush(cache, c, cache.count(c));
    drop_array(cache, c);
  }
  release_held_run(cache.run);
}

void flush_all(Cache& cache) {
  empty_quarantine(cache);
  flush_arrays(cache);
}

static void give_back_cold_for(SlabUser& user, Cache* cache, bool due) {
  if (!purge_cold_pages(user, due)) return;
  if (cache != nullptr) flush_arrays(*cache);
  release_class_runs();
  purge_slabs(user, WentBack::slabs);
}

void give_back_cold(Cache* cache, bool due) {
  if (cache != nullptr) return give_back_cold_for(cache->user, cache, due);
  Seated seated;
  give_back_cold_for(seated.user(), nullptr, due);
}

// Whether one other counts.
static bool leaves_one(Cache& cache) {
  LockGuard guard(cache_registry_lock);
  if (!cache.is_counted) return false;
  cache.is_counted = false;
  return caches_in_use.fetch_add_relaxed(~u32{0}) == 2;
}

void leave_transfer(Cache& cache) {
  // For the thread that stays the bins are closed. Of two threads that end at once, one comes last.
  if (leaves_one(cache)) drain_transfer(cache.user);
}

void destroy_cache(Cache& cache) {
  flush_all(cache);
  leave_transfer(cache);
  stop_counting(cache);
  all_capacity_bytes.sub_relaxed(cache.capacity_bytes);  // of a class that the child of a fork could not give back
  {
    LockGuard guard(cache_registry_lock);
    leave_registry(cache);
  }
  return_metadata(&cache, sizeof(Cache));
}

void* pop_slow(Cache& cache, SizeClass c) {
  void* block;
  {
    Changing changing(cache, c);
    if (cache.count(c) > kept_for_counting(cache, c)) {
      if (cache.top[c] == cache.low[c]) cache.low[c] = cache.base[c] + cache.count(c) / 2;
      return *--cache.top[c];
    }
    const unsigned before = cache.capacity(c);
    grow(cache, c, false);
    const ClassInfo& info = class_info(c);
    const unsigned have = cache.count(c);
    // A class that may not grow is filled by half, as it is emptied by half: frees and allocations in turn then rarely
    // meet either end.
    const unsigned room = (cache.capacity(c) == before ? (before + 1) / 2 : cache.capacity(c)) - have;
    if (room == 0 && have == 0) return take_class_block(c, cache.user);
    unsigned got = 0;
    if (is_slab_class(c)) {
      if (uses_transfer(c)) got = take_from_transfer(c, cache.user.shard, room, cache.top[c]);
      if (got == 0) got = take_blocks(c, cache.user, min_of<unsigned>(info.batch, room), room, cache.top[c]);
    } else {
      got = take_class_runs(c, cache.user.shard, cache.capacity(c) - have, cache.top[c]);
    }
    FREESTONE_CHECK("CACHE-2", are_in_use(c, cache.top[c], got));
    cache.low[c] = cache.base[c];
    cache.top[c] += got;
    if (have + got == 0) return nullptr;
    block = *--cache.top[c];
    if constexpr (!kChecksEveryCall) cache.high[c] = cache.top[c];  // CACHE-5; counting.h opens it again
  }
  note_event(cache);
  return block;
}

void push_slow(Cache& cache, SizeClass c, void* block) {
  {
    Changing changing(cache, c);
    const unsigned capacity = cache.capacity(c);
    if (capacity - cache.count(c) > kept_for_counting(cache, c)) {
      cache.push(c, cache.top[c], block);
      return;
    }
    grow(cache, c, true);
    if (cache.capacity(c) == 0) return return_class_blocks(c, cache.user, &block, 1, true);
    if (cache.capacity(c) == capacity) flush(cache, c, (capacity + 1) / 2, true);
    cache.push(c, cache.top[c], block);
    raise_mark(cache, c, 0);
  }
  note_event(cache);
}

bool was_just_freed_counted(const Cache& cache, SizeClass c, const void* block) {
  // Of an open class, places below the border may hold what was handed out since.
  void* const* from = c < kCountedClassEnd ? cache.counting->of[c].border : nullptr;
  if (from == nullptr) from = cache.base[c];
  void* const* const top = cache.top[c];
  for (void* const* place = top - min_of<usize>(static_cast<usize>(top - from), kRunPlaces); place != top;
       ++place) {
    if (FREESTONE_UNLIKELY(*place == block)) return true;
  }
  return false;
}

void* take_one(SizeClass size_class, u64& random) {
  Seated seated;
  seated.user().random = random;
  void* block = take_class_block(size_class, seated.user());
  random = seated.user().random;
  return block;
}

void return_one(SizeClass size_class, void* block) {
  Seated seated;
  return_class_blocks(size_class, seated.user(), &block, 1);
}

// In the child of a fork, by the thread whose cache it is: the child shall not draw what its parent and its siblings
// draw. Numbers begin anew, and the blocks that each class hands out next change places with others of its array. A
// class that interrupted code is changing stays as it is. A pop or a push that was interrupted does not see it
// (CACHE-2).
static void renew_randomness(Cache& cache) {
  if constexpr (!kMitigations.random_order && !kMitigations.quarantine) return;
  constexpr unsigned kNextBlocks = 16;
  u64 random = os::entropy();
  cache.user.random = next_mixed(random) | 1;
  if (!kMitigations.random_order || cache.counting != nullptr) return;
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    if (c == cache.changing.load_relaxed()) continue;
    const unsigned count = cache.count(c);
    for (unsigned left = count; left > 1 && left + kNextBlocks > count; --left) {
      void*& next = cache.base[c][left - 1];
      void*& other = cache.base[c][next_mixed(random) % left];
      void* const block = next;
      next = other;
      other = block;
    }
  }
}

// Of a queue, as counting.h says it of a class.
[[maybe_unused]] static SeenBlocks seen_blocks(const Queue& queue) {
  void** const base = __atomic_load_n(&queue.base, __ATOMIC_RELAXED);
  void** const top = __atomic_load_n(&queue.top, __ATOMIC_RELAXED);
  const auto count = static_cast<usize>(top - base);
  return count <= queue.capacity() && count <= kQuarantineClassBytes / kBlockBytesMin ? SeenBlocks{base, top, top, top}
                                                                                      : SeenBlocks{};
}

FREESTONE_SLOW void count_cached(usize (&blocks)[kClassEnd]) {
  for (usize& b : blocks) b = 0;
  LockGuard guard(cache_registry_lock);
  for_each_registered([&](const Cache& cache) {
    for (SizeClass c = 1; c < kClassEnd; ++c) blocks[c] += seen_blocks(cache, c).count();
    cache.quarantine.for_each([&](SizeClass c, const Queue& queue) { blocks[c] += seen_blocks(queue).count(); });
  });
  count_transfer(blocks);
}

usize class_blocks_outside(SizeClass size_class) {
  return is_slab_class(size_class) ? blocks_outside(size_class) : class_runs_outside(size_class);
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

HeldRuns held_runs() {
  HeldRuns held{};
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
    cache.quarantine.for_each([&](SizeClass, const Queue& queue) { copy(seen_blocks(queue)); });
  });
  return copied + copy_transfer_blocks(out + copied, room - copied);
}

usize cache_count() { return caches_in_use.load_relaxed(); }

bool is_struck_at_work(const Cache* cache) {
  if (span_lock.is_mine() || orphans_lock.is_mine() || cache_registry_lock.is_mine()) return true;
  return cache != nullptr && (cache->changing.load_relaxed() != 0 || cache->user.token.load_relaxed() != kNoUnit);
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void repair_caches_in_child(Cache* own) {  // the lock is seized or not
  forget_slab_purge();
  orphans_lock.reset_in_child();
  const bool cut_short = cache_registry_lock.seize_in_child();
  const auto repair_user = [own](SlabUser& user) {
    const UnitIndex token = user.token.load_relaxed();
    if (own == nullptr || token != own->user.token.load_relaxed()) repair_slab_in_child(token);
    user.token.store_relaxed(kNoUnit);
  };
  if (cut_short && moving != nullptr) {
    leave_registry(*moving);
    enter_registry(*moving);
    moving = nullptr;
  }
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

FREESTONE_SLOW bool caches_are_valid() {
  LockGuard guard(cache_registry_lock);
  return find_cache([](const Cache& cache) {
           return !is_orphan(cache) && cache.counting == nullptr && !cache_is_valid(cache);
         }) == nullptr;
}

FREESTONE_SLOW bool cache_is_valid(const Cache& cache) {
  usize bytes = 0;
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    if (!is_ordered(cache, c) || cache.capacity(c) > class_info(c).cap_max) return false;
    bytes += usize{cache.capacity(c)} * class_info(c).bytes;
  }
  return bytes == cache.capacity_bytes;
}

}  // namespace freestone
