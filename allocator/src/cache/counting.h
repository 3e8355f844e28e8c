// Room 8, cache: counting allocations exactly while the fast paths stay as they are.
//
// A pop followed by a push leaves no trace in a stack, so a stack cannot count allocations. While a cache counts, the
// array of a class is therefore two stacks. The table `class_of_granules`, through which malloc finds the class, names
// an entry behind the tags, from which malloc only pops; `free` pushes to the class's own entry.
//
//   base       low[entry]      top[entry]       border       top         high
//    | blocks ... | may be popped .|  popped .., 0 | pushed ...|  room .....|
//
// A null ends the popped region when there is room for it (CACHE-4). What lies between top[entry] and that null was
// allocated since the class was opened. No more blocks may be popped than there are allocations before the next sample,
// so the sampled one arrives at the slow path. A class above kCountedBytes stays closed instead (low = top = high):
// each of its calls takes the slow path.
//
// A slow path closes the class (one stack, CACHE-1 to CACHE-3 hold), does its work, and opens it again.
//
// COUNT-1  Open: base <= low[entry] <= top[entry] <= border <= top <= high; the pieces [base, top[entry]) and
//          [border, top) are the cached blocks.
#pragma once

#include "base/check.h"
#include "cache/cache.h"

namespace freestone {

// The state of one class, in half a cache line: a slow path needs all of it.
struct alignas(32) Counted {
  void** border;     // open, up to kCountedBytes: where pushes begin
  u64 until_sample;  // allocations of the class until the sampled one, that one included
  void** low;        // open: the cache's own
  void** high;       // closed to the fast paths: the cache's own; else null
};

struct Counting {
  Counted of[kClassEnd];
  bool hold_all;           // the classes up to kCountedBytes too: every call takes the slow path
  u32 epoch;               // of the sampling that the distances were drawn for
  i64 bytes_until_sample;  // for all above kCountedBytes together
};

// How far the next samples are; set by front with the observer.
struct SampleDistances {
  u64 (*allocations)(usize block_bytes);  // of one class
  i64 (*bytes)();
};

void open_counted(Cache& cache, SizeClass size_class);
void close_counted(Cache& cache, SizeClass size_class);

// In the child of a fork: the class's array cannot be trusted.
void forget_counted(Cache& cache, SizeClass size_class);

// The calling thread's cache starts or stops counting. False when memory is out.
bool start_counting(Cache& cache, const SampleDistances& distances, bool hold_all, u32 epoch);
// Stops counting; leaves the table of classes as it is.
void stop_counting(Cache& cache);
// Restores the calling thread's table of classes, as it is without counting. See recall_caches.
void answer_recall(Cache& cache);

// A counted class takes a slow path whenever its poppable part or its room runs out. Both are kept above this many
// blocks.
inline unsigned kept_for_counting(const Cache& cache, SizeClass size_class) {
  if (FREESTONE_LIKELY(cache.counting == nullptr) || size_class >= kCountedClassEnd) return 0;
  return min_of<unsigned>(class_info(size_class).batch, cache.capacity(size_class) / 4);
}

// Most slow paths of a counting cache end here. The pop gives a cached block and counts it, unless there is none to
// spare or the allocation is the sampled one. The push says whether the freed block found room. Null or false: nothing
// changed.
void* pop_counted(Cache& cache, SizeClass size_class, usize bytes);
bool push_counted(Cache& cache, SizeClass size_class, void* block);

// Counts an allocation that takes the slow path. Whether it is the sampled one.
bool count_class_allocation(Cache& cache, SizeClass size_class, usize bytes, const SampleDistances& distances);
bool count_bytes(Cache& cache, usize bytes, const SampleDistances& distances);

// The two halves of count_bytes, for a caller that can serve only allocations that are not sampled.
inline bool sample_is_near(const Cache& cache, usize bytes) {
  return cache.counting->bytes_until_sample <= static_cast<i64>(bytes);
}
inline void count_unsampled(Cache& cache, usize bytes) {
  cache.counting->bytes_until_sample -= static_cast<i64>(bytes);
}

// The cached blocks of a class as any thread sees them: [base, poppable) and [border, top). Each pointer is read once,
// without order. Nothing if they do not fit together, because the owner is replacing the array at this moment.
struct SeenBlocks {
  void** base;
  void** poppable;
  void** border;
  void** top;
  unsigned count() const { return static_cast<unsigned>((poppable - base) + (top - border)); }
};
SeenBlocks seen_blocks(const Cache& cache, SizeClass size_class);

// While it exists the class is closed (counting.h) and marked.
class Changing {
 public:
  Changing(Cache& cache, SizeClass size_class) : cache_(cache), size_class_(size_class), marking_(cache, size_class) {
    if (FREESTONE_UNLIKELY(cache.counting != nullptr)) close_counted(cache, size_class);
    FREESTONE_CHECK("CACHE-1", is_ordered(cache, size_class));
  }
  ~Changing() {
    FREESTONE_CHECK("CACHE-1", is_ordered(cache_, size_class_));
    FREESTONE_CHECK("CACHE-4", cache_.capacity(size_class_) <= class_info(size_class_).cap_max);
    if (FREESTONE_UNLIKELY(cache_.counting != nullptr)) open_counted(cache_, size_class_);
  }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  Cache& cache_;
  SizeClass size_class_;
  Marking marking_;
};

}  // namespace freestone
