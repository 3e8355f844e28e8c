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

#include <type_traits>

#include "base/bits.h"
#include "base/check.h"
#include "base/compiler.h"
#include "cache/quarantine.h"
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

// Fast build: the process's first kLooks frees above a mark and then each class's first after a refill, and the first
// kLookPlaces questions for the size of a class's block, look the block up in its slab and among the last that were
// freed: kLookPlaces of them while the process makes its first kLooks, then kRunPlaces.
inline constexpr u32 kLooks = 5 * 1024;
inline constexpr usize kLookPlaces = 64;
// What a class above the slabs has at most: each of its frees is looked up among all.
inline constexpr usize kRunPlaces = kCachedBytesMax / (kSmallBytesMax + 1) + 1;

struct Counting;

extern Mutex cache_registry_lock;

// What a thread may spend on sealing, in bytes: a stock at first, then an amount per millisecond.
struct Allowance {
  static constexpr u32 kClockEvery = 16;  // refusals from one look at the clock to the next
  usize spent = 0;
  u64 last_ms = 0;
  u32 refusals = 0;  // stays 0 without a rate: then nothing is refused

  FREESTONE_INLINE bool take(usize bytes) {
    if (FREESTONE_LIKELY(spent + bytes <= kAllowanceStock)) {
      spent += bytes;
      return true;
    }
    if (FREESTONE_LIKELY(refusals++ % kClockEvery != 0)) return false;
    return take_slow(bytes);
  }
  // Earns what is due since it was last called.
  bool take_slow(usize bytes);
};
struct NoAllowance {
  bool take(usize) { return true; }
};

struct ClassOfGranules {
  u8 of[kGranuleTableBytes / kGranule + 1];

  constexpr ClassOfGranules() : of() {
    for (usize g = 0; g < sizeof of; ++g) of[g] = static_cast<u8>(class_of(g * kGranule));
  }
};
inline constexpr ClassOfGranules kClassOfGranules;

// How often a class was found full after it was found empty, or empty after full. A program that grows or shrinks makes
// few turns.
struct Turns {
  static constexpr u8 kMost = 0xff;
  static constexpr u8 kOften = 8;
  // Smaller blocks miss seldom: a refill brings many.
  static constexpr SizeClass kFirst = class_of(256) + 1;
  // Odd: the class was found full the last time.
  u8 count = 0;

  void note(bool full) {
    if (full == (count % 2 != 0)) return;
    count = count == kMost ? kMost - 1 : static_cast<u8>(count + 1);
  }
  void halve() { count = static_cast<u8>(count / 4 * 2 + count % 2); }
};

struct alignas(64) Cache {
  // Indexed by tag; entries of tags that are not classes stay null, so `free` needs no test for them.
  void** top[kCountedEntry + kCountedClassEnd] = {};
  void** low[kCountedEntry + kCountedClassEnd] = {};
  void** high[kTagCount] = {};
  Atomic<u8> class_of_granules[sizeof kClassOfGranules.of];  // written by the owner, and by a recall

  void** base[kClassEnd] = {};
  SlabUser user;
  Atomic<u8> changing;  // the class that a slow path is at work on; 0: none
  Turns turns[kClassEnd - Turns::kFirst];  // halved at each adaptation
  u32 events = 0;             // refills and flushes since the last adaptation
  usize capacity_bytes = 0;
  HeldRun run;
  Atomic<usize> worker;     // own_thread() of its owner, or of who takes it apart; 0: parked (PARK-1)
  u32 thread_id = 0;        // of the owner
  u32 generation = 0;       // of the process that it was made or adopted in (platform/child.h)
  bool is_counted = false;  // in caches_in_use
  bool is_plain = false;    // its owner's frees need not all be seen
  Atomic<u8> recalled;      // see recall_caches
  u32 pressure_seen = 0;    // the pressure epoch that this cache was last given back for
  u64 refills = 0;          // and flushes, since the thread began: statistics, read by others without order
  u64 refills_at_tick = 0;  // what it was when the thread last let time pass
  Counting* counting = nullptr;  // counting.h; null: allocations are not counted
  Cache* next = nullptr;  // registry; its lock is held to look at another thread's cache
  [[no_unique_address]] Quarantine<kMitigations.quarantine> quarantine;
  [[no_unique_address]] std::conditional_t<kMitigations.quarantine, Allowance, NoAllowance> allowance;

  // CACHE-2 at every instant, also as another thread's fork sees it: the slot is written before top passes it.
  FREESTONE_INLINE void push(usize tag, void** at, void* block) {
    *at = block;
    advance_release(top[tag], at);
  }
  unsigned capacity(SizeClass c) const {
    return base[c] != nullptr ? static_cast<unsigned>(address_of(base[c][-1])) : 0;  // CACHE-4
  }
  bool turns_often(SizeClass c) const {
    return kGrowsForTurns && c >= Turns::kFirst && turns[c - Turns::kFirst].count >= Turns::kOften;
  }
  unsigned count(SizeClass c) const { return static_cast<unsigned>(top[c] - base[c]); }
};
static_assert(kMitigations.quarantine || sizeof(Cache) <= 4 * kKiB,
              "a thread that allocates little pays one page for its cache");

// A cache for the calling thread, registered: a parked one (parking.h) or a new one; null when memory is out. A thread
// that ended without its destructors may have left a cache at the caller's address: its blocks go back.
Cache* create_cache();
// Says who works on the cache from now on; 0: it is parked.
void set_worker(Cache& cache, usize worker) FREESTONE_REQUIRES(cache_registry_lock);
// Puts blocks of the class into its array, and what has no room there into the slabs. For a slow path at work on the
// class.
void give_to_class(Cache& cache, SizeClass size_class, void* const* blocks, unsigned count);
// Called at the end of each slow path, outside its class: looks whether something is due.
void note_event(Cache& cache);
// Flushes everything and gives the cache back.
void destroy_cache(Cache& cache);
// The cache counts no longer as one in use, and if that leaves one, the transfer bins are emptied.
void leave_transfer(Cache& cache);

// Pops a block of the class after refilling or lowering the mark; null when memory is out.
void* pop_slow(Cache& cache, SizeClass size_class);
// Pushes a block of the class after making room.
void push_slow(Cache& cache, SizeClass size_class, void* block);
// Fast build: how many looks the process has made, up to kLooks. Relaxed: one more or less does not matter.
extern FREESTONE_HIDDEN Atomic<u32> looks_made;
FREESTONE_INLINE bool looks_closely() { return looks_made.load_relaxed() < kLooks; }
// Fast build: raises the mark after a free was looked up, for `blocks` more at least. False: the array is full.
FREESTONE_INLINE bool raise_mark(Cache& cache, SizeClass size_class, unsigned blocks) {
  if (kChecksEveryCall || cache.counting != nullptr || cache.base[size_class] == nullptr) return false;
  const unsigned capacity = cache.capacity(size_class);
  const unsigned count = cache.count(size_class);
  FREESTONE_CHECK("CACHE-5", cache.high[size_class] <= cache.base[size_class] + capacity);
  cache.high[size_class] = cache.base[size_class] + (looks_closely() ? min_of(capacity, count + blocks) : capacity);
  return count != capacity;
}
// Whether the block is among the last that the owning thread freed and has not handed out again. Looks at a few places,
// to cost little beside a `realloc`; for class runs these are all places.
bool was_just_freed_counted(const Cache& cache, SizeClass size_class, const void* block);
FREESTONE_INLINE bool was_just_freed(const Cache& cache, SizeClass size_class, const void* block) {
  if (FREESTONE_UNLIKELY(cache.counting != nullptr)) return was_just_freed_counted(cache, size_class, block);
  void* const* place = cache.top[size_class];
  usize places = kRunPlaces;
  if (looks_closely()) looks_made.add_relaxed(1), places = kLookPlaces;
  void* const* const end = place - min_of<usize>(cache.count(size_class), places);
  while (place != end) {
    if (FREESTONE_UNLIKELY(*--place == block)) return true;
  }
  return false;
}
// Fast build: bytes of a block by tag, for calls that end there (`malloc_usable_size`, a `realloc` in place). 0: the
// call takes the slow path, which checks the address in the block's slab. So it is for a tag that is not a slab class,
// and for a class until kLookPlaces calls were checked.
struct TrustedBytes {
  Atomic<u32> of[kTagCount];
  Atomic<u8> checks[kTagCount];  // relaxed, as `of`: one more or less does not matter

  void checked(SizeClass size_class) {
    const unsigned seen = checks[size_class].load_relaxed() + 1U;
    if (seen >= kLookPlaces) {
      of[size_class].store_relaxed(class_info(size_class).bytes);
    } else {
      checks[size_class].store_relaxed(static_cast<u8>(seen));
    }
  }
};
extern FREESTONE_HIDDEN TrustedBytes trusted_bytes;

// Gives back what lies in the arrays, and the arrays.
void flush_arrays(Cache& cache);
// Gives all cached blocks back, those in the queues of the hardened build too.
void flush_all(Cache& cache);
// Gives back memory inside slabs that nobody needs (purge_cold_pages). When few blocks are left, empties the cache
// first: each block in it may keep a page, and an array sized for the larger heap would keep one page for each. `due`:
// a tick, or a look after so many events. `cache` is null for a thread that has none.
void give_back_cold(Cache* cache, bool due);

// Destroys the caches that have been parked for so long.
void release_parked_caches(u64 age_ms = 0);

// Take and return a block for a thread that is ending or cannot get a cache. `random` goes on from call to call.
void* take_one(SizeClass size_class, u64& random);
void return_one(SizeClass size_class, void* block);
// Blocks of a class that are live or in a cache.
usize class_blocks_outside(SizeClass size_class);
// Counts the blocks in all caches, per class. The owners may go on.
void count_cached(usize (&blocks)[kClassEnd]);
usize cache_count();
// Calls visit(context, cache, cached bytes) for each thread's cache, under the registry's lock. The owners may go on.
void for_each_cache(void (*visit)(void* context, const Cache& cache, usize cached_bytes), void* context);
// Sends each thread's next allocation of up to kGranuleTableBytes to the slow path; a thread that its cache always
// serves would never go there. For that, all entries of its table of classes name the second entry of class 0, which is
// always empty. Any thread may call it, also in a signal handler; it does nothing while another thread has the
// registry's lock.
void recall_caches();
// Whether each thread may keep a run of so many bytes for itself.
extern FREESTONE_HIDDEN Atomic<u32> caches_in_use;
inline bool may_hold_run(usize bytes) { return bytes * caches_in_use.load_relaxed() <= kHeldRunBytes; }
// The runs that threads keep.
struct HeldRuns {
  usize runs;
  usize bytes;
};
HeldRuns held_runs();
// Copies the addresses of at most `room` cached blocks; returns how many. Complete if the owners are at rest.
usize copy_cached_blocks(void** out, usize room);

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

// Debug: CACHE-1, CACHE-3 and CACHE-4.
bool cache_is_valid(const Cache& cache);
bool caches_are_valid();

}  // namespace freestone
