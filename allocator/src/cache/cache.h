// Room 8, cache: what stands in front of the slabs, one per thread.
//
// Each class has an array of block addresses, used as a stack: `malloc` pops, `free` pushes, and neither touches the
// block.
//
//   base        low             top            high
//    | blocks ... | blocks .......|  room .......|
//
// CACHE-1  base <= low <= top <= high, all null before the class is first used, so "empty", "full" and "not yet
//          initialised" are the same tests.
// CACHE-2  [base, top) holds distinct blocks that are live nowhere else, at every instruction of a push or pop. So the
//          child of a fork may drain a thread's cache wherever the thread stood outside a slow path. A slow path first
//          names its class in `changing`.
// CACHE-3  The sum over classes of capacity * block size is `capacity_bytes`, at most the thread's budget. A sleeping
//          thread holds no more than that, its kept run, and its queues in the hardened build (quarantine.h).
// CACHE-4  The word before base is the capacity. While a class is open (counting.h), the word before the border is
//          null. So top[-1] is a cached block or not an address in the window, and a free that finds its own block
//          there is a double free.
// CACHE-5  high is at most base + capacity. In the fast build a refill lowers it to top. A free that lifts the array
//          above it takes the slow path, which looks the address up in the slab and among the blocks that were freed
//          last, and raises it: by one block while the process `looks_closely`, then to the end of the array.
//
// `low` is the low-water mark: blocks below it were not needed since the last adaptation. A pop that reaches it takes
// the slow path, which halves the distance from base to `low`, and goes on.
//
// Only the owning thread changes a cache; statistics read the pointers without order.
#pragma once

#include "base/bits.h"
#include "base/check.h"
#include "base/compiler.h"
#include "cache/budget.h"
#include "config/heuristics.h"
#include "platform/child.h"
#include "platform/mutex.h"
#include "policy/policy.h"
#include "slab/slab.h"
#include "span/run.h"

namespace freestone {

inline constexpr usize kGranuleTableBytes = 4 * kKiB;  // sizes up to here find their class in a table
inline constexpr usize kCountedBytes = kKiB;           // counting.h: classes up to here have a second entry
inline constexpr SizeClass kCountedClassEnd = class_of(kCountedBytes) + 1;
inline constexpr unsigned kCountedEntry = kTagCount;  // the second entry of class 0

struct Counting;
struct ClassOfGranules {
  u8 of[kGranuleTableBytes / kGranule + 1];

  constexpr ClassOfGranules() : of() {
    for (usize g = 0; g < sizeof of; ++g) of[g] = static_cast<u8>(class_of(g * kGranule));
  }
};
inline constexpr ClassOfGranules kClassOfGranules;

// What a cache of the hardened build has beside its arrays, of each class of slabs (quarantine.h). In one piece lie the
// batch, [base, end), of which [base, top) is filled, then the pool, then the ring.
struct Queue {
  void** base = nullptr;
  u32 batch = 0;  // places, like the next two
  u32 pool = 0;   // a power of two
  u32 ring = 0;
  u32 pool_mask = 0;  // of the places in use: they double when most are taken
  u32 oldest = 0;     // in the ring
  u32 held = 0;       // blocks in the pool and in the ring

  void** end() const { return base + batch; }
  void** behind() const { return end() + pool + ring; }
};

template <bool Enabled>
struct Quarantine {
  void** top[kLastSmallClass + 1] = {};
  void** end[kLastSmallClass + 1] = {};
  Queue queues[kLastSmallClass + 1];

  template <typename Visit>
  void for_each(Visit visit) const {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) visit(c, queues[c], top[c]);
  }
};
template <>
struct Quarantine<false> {  // for code that is never called
  static inline void** top[kLastSmallClass + 1];
  static inline void** end[kLastSmallClass + 1];
  static inline Queue queues[kLastSmallClass + 1];

  template <typename Visit>
  void for_each(Visit) const {}
};

struct alignas(64) Cache {
  // Indexed by tag; entries of tags that are not classes stay null, so `free` needs no test for them.
  void** top[kCountedEntry + kCountedClassEnd] = {};
  void** low[kCountedEntry + kCountedClassEnd] = {};
  void** high[kTagCount] = {};
  Atomic<u8> class_of_granules[sizeof kClassOfGranules.of];  // written by the owner, and by a recall

  void** base[kClassEnd] = {};
  SlabUser user;
  Atomic<u8> changing;       // the class that a slow path is at work on; 0: none
  Misses misses[kClassEnd];  // halved at each adaptation
  u32 events = 0;            // refills, flushes and frees of runs since the last adaptation
  usize capacity_bytes = 0;
  HeldRun run;
  Atomic<usize> worker;          // own_thread() of its owner, or of who takes it apart; 0: parked (PARK-1)
  u32 thread_id = 0;             // of the owner
  u32 generation = 0;            // of the process that it was made or adopted in (platform/child.h)
  bool is_counted = false;       // in caches_in_use
  bool is_plain = false;         // its owner's frees need not all be seen
  Atomic<u8> recalled;           // see recall_caches
  u32 pressure_seen = 0;         // the pressure epoch that this cache was last given back for
  u64 refills = 0;               // and flushes, since the thread began: statistics, read by others without order
  u64 refills_at_tick = 0;       // what it was when the thread last let time pass
  Counting* counting = nullptr;  // counting.h; null: allocations are not counted
  Cache* next = nullptr;         // registry; its lock is held to look at another thread's cache
  [[no_unique_address]] Quarantine<kMitigations.quarantine> quarantine;

  // CACHE-2 at every instant, also as another thread's fork sees it: the slot is written before top passes it.
  FREESTONE_INLINE void push(usize tag, void** at, void* block) {
    *at = block;
    advance_in_order(top[tag], at);
  }
  unsigned capacity(SizeClass c) const {
    return base[c] != nullptr ? static_cast<unsigned>(address_of(base[c][-1])) : 0;  // CACHE-4
  }
  // Whether the class, with room for fewer blocks than these, would miss at each few calls. More bytes must save more.
  bool needs(SizeClass c, unsigned blocks) const {
    const usize bytes = blocks * class_info(c).bytes;
    if (c < Misses::kFirst) return bytes <= kCacheSmallNeeded;
    return blocks <= kCacheBlocksNeeded && misses[c].count >= kOftenMissed * bytes_to_units(bytes);
  }
  unsigned count(SizeClass c) const { return static_cast<unsigned>(top[c] - base[c]); }
};
static_assert(kMitigations.quarantine || sizeof(Cache) <= 4 * kKiB,
              "a thread that allocates little pays one page for its cache");

// CACHE-1 of a class that is closed.
inline bool is_ordered(const Cache& cache, SizeClass c) {
  return cache.base[c] <= cache.low[c] && cache.low[c] <= cache.top[c] && cache.top[c] <= cache.high[c] &&
         cache.high[c] <= cache.base[c] + cache.capacity(c);
}

// While it exists, the child of a fork leaves the class alone.
class Marking {
 public:
  Marking(Cache& cache, SizeClass size_class) : changing_(cache.changing), before_(changing_.load_relaxed()) {
    FREESTONE_CHECK("CACHE-2", before_ != size_class);  // it would open the class too soon
    changing_.store_relaxed(static_cast<u8>(size_class));
    // A fork copies what this thread has done so far, so only the compiler must keep the order.
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
  ~Marking() {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    changing_.store_relaxed(before_);
  }
  Marking(const Marking&) = delete;
  Marking& operator=(const Marking&) = delete;

 private:
  Atomic<u8>& changing_;
  u8 before_;
};

// Whether each thread may keep a run of so many bytes for itself.
inline bool may_hold_run(usize bytes) {
  return !kMitigations.quarantine && bytes * caches_in_use.load_relaxed() <= kHeldRunBytes &&
         options.dirty_decay_ms != 0;
}
inline usize cache_count() { return caches_in_use.load_relaxed(); }

}  // namespace freestone
