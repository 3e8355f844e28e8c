// Room 9, front: sampled blocks. An observer learns of one allocation in so many bytes, and of its free.
//
// The fast paths do not know of samples. While an observer wants them, each thread's cache counts its allocations
// (cache/counting.h), and the sampled allocation takes the slow path. The observer may serve it outside the slabs, in
// units with the tag kTagSampled, whose cache entry is always full: then its free takes the slow path too. Or the
// observer tracks an ordinary block whose free takes the slow path anyway: a block above the size classes, or any block
// while the caches hold nothing.
//
// Rooms below reach the sampling room through `sample_observer` and `start_observers`, never by name.
#pragma once

#include "base/atomic.h"
#include "cache/counting.h"
#include "front/thread_cache.h"
#include "policy/policy.h"
#include "region/region.h"

namespace freestone {

enum class Sampling : u8 {
  off,
  some,         // blocks of the size classes are served apart, larger ones are tracked
  every_block,  // all are tracked; the caches hold nothing
};

// The bytes that the program asked for. The hardened build adds a word to every request, which a sampled block does not
// need.
constexpr usize request_of(usize bytes) { return bytes - min_of(bytes, kHeldBackBytes); }

// Set before the first sample. The functions run on the allocating or freeing thread, with no lock held, and may not
// call malloc.
struct SampleObserver {
  SampleDistances distances;
  // An allocation of `bytes` at a multiple of `alignment` is sampled; `counted_bytes` were counted for it. Returns a
  // block served apart, or null for an ordinary block; then *track says whether to pass that to `placed`.
  void* (*allocate)(usize bytes, usize alignment, usize counted_bytes, bool* track);
  void (*placed)(void* block, usize bytes);
  // A block above the classes was resized in place or by moving its pages, and that counts as a sampled allocation.
  void (*resized)(void* block, usize bytes);
  // A block served apart is freed. The observer gives its units back.
  void (*deallocate)(void* block, UnitIndex first);
  // An ordinary block is about to be freed or moved. Does nothing when it is not tracked.
  void (*freed)(void* block);
  // Memory is short: give back the units of freed blocks that were kept to recognise a misuse.
  void (*release_freed)();
  // The program freed an address that is not a live block. The observer reports it if it knows more, and returns
  // otherwise.
  void (*misused)(const char* call, const void* block);
};
// Those of the sampling room.
extern FREESTONE_HIDDEN const SampleObserver* const sample_functions;
// Null until somebody first wanted samples.
class SampleObserverSwitch {
 public:
  void begin() { is_on_.store_release(1); }
  const SampleObserver* load_relaxed() const { return is_on_.load_relaxed() != 0 ? sample_functions : nullptr; }
  const SampleObserver* load_acquire() const { return is_on_.load_acquire() != 0 ? sample_functions : nullptr; }

 private:
  Atomic<u8> is_on_;
};
extern FREESTONE_HIDDEN SampleObserverSwitch sample_observer;
extern Atomic<Sampling> sampling;
extern Atomic<u32> sampling_epoch;  // rises when the distances change; a thread draws new ones at its next slow path

// Any thread, also in a signal handler. Each thread's next slow path sees it.
void set_sampling(Sampling mode);
// Brings the calling thread's cache in line with `sampling` now.
void renew_counting(Cache& cache);
// Most slow paths of a counting thread end here. Returns a cached block if no sample is due; null otherwise, or if the
// thread does not count.
FREESTONE_INLINE bool counts(const Cache& cache) {
  return FREESTONE_UNLIKELY(cache.counting != nullptr) && cache.counting->epoch == sampling_epoch.load_relaxed() &&
         cache.recalled.load_relaxed() == 0;
}
FREESTONE_INLINE void* pop_unsampled(usize bytes) {
  Cache& cache = thread_cache();
  return counts(cache) && bytes <= kCachedBytesMax ? pop_counted(cache, class_of(bytes), bytes) : nullptr;
}
// Whether the block of a class, whose free took the slow path, is back in the thread's cache.
FREESTONE_INLINE bool push_unsampled(SizeClass size_class, void* block) {
  Cache& cache = thread_cache();
  return counts(cache) && is_slab_class(size_class) && push_counted(cache, size_class, block);
}
// Counts one allocation on the slow path; size_class 0: above the classes. Returns a block served apart or null; *track
// as above.
void* sample_allocation(Cache& cache, SizeClass size_class, usize bytes, usize alignment, bool* track);
// Counts a resize in place of a block above the classes as an allocation of the new size.
void sample_resized(void* block, usize bytes);
FREESTONE_INLINE void sample_freed(void* block) {
  if (const SampleObserver* observer = sample_observer.load_acquire(); FREESTONE_UNLIKELY(observer != nullptr))
    observer->freed(block);
}

// Called once when the options are known and the region stands, before the first block is given out. The sampling room
// defines it.
using StartObservers = void (*)();
extern FREESTONE_HIDDEN const StartObservers start_observers;

// The record of a sampled block's unit. Only the first unit's record has all fields; the others have first_unit.
class SampledRecord {
 public:
  explicit SampledRecord(UnitIndex unit) : record_(record_of(unit)) {}
  Atomic<u64>& first_unit() const { return record_.words[1]; }
  Atomic<u64>& block() const { return record_.words[0]; }   // its address; 0: freed, and its units are kept
  Atomic<u64>& sample() const { return record_.words[2]; }  // the profiler's, by address; 0: none
  Atomic<u64>& guard() const { return record_.words[3]; }   // the number of its slot, from 1; 0: it has no guards
  u64& bytes() const { return record_.request_bytes; }      // as asked for
  u32& units() const { return record_.run_units; }

 private:
  Record& record_;
};

// Takes units for a sampled block and fills in their tags and records, but no sample and no guard. The block starts
// `offset` bytes into them. kNoUnit when memory is out.
UnitIndex take_sampled_units(usize bytes, usize units, usize alignment_units, usize offset);
void return_sampled_units(UnitIndex first);
// The program gave the block back, though its units may be kept a while.
void note_sampled_freed(UnitIndex first);
struct SampledCounts {
  usize live_blocks;
  usize live_bytes;  // as asked for
};
SampledCounts sampled_counts();
// Of their units, what guards closed and has no memory; relaxed: a statistic.
extern FREESTONE_HIDDEN Atomic<usize> sampled_closed_bytes;

inline void* sampled_block(UnitIndex first) {
  return reinterpret_cast<void*>(SampledRecord(first).block().load_relaxed());
}
inline usize sampled_bytes(UnitIndex first) { return SampledRecord(first).bytes(); }
// The first unit of the sampled block that `pointer` points into; kNoUnit when it is not inside one.
UnitIndex sampled_first_unit(const void* pointer);

}  // namespace freestone
