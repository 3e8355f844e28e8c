// Room 8, cache: see counting.h.

#include "cache/counting.h"

#include <cstring>

#include "base/check.h"
#include "config/heuristics.h"
#include "region/metadata.h"

namespace freestone {

namespace {

constexpr SizeClass entry_of(SizeClass size_class) { return kCountedEntry + size_class; }

template <typename Work>
FREESTONE_INLINE void change(Cache& cache, SizeClass c, Work work) {
  const Marking marking(cache, c);
  work(cache, c);
}

// The two pieces of an open class.
struct Pieces {
  void** poppable;  // where what may still be popped ends
  usize popped;
  usize pushed;
  usize count;  // cached blocks in both pieces
};

FREESTONE_INLINE Pieces pieces_of(const Cache& cache, SizeClass c, void** border) {
  void** const poppable = cache.top[entry_of(c)];
  FREESTONE_CHECK("COUNT-1", cache.base[c] <= cache.low[entry_of(c)] && cache.low[entry_of(c)] <= poppable &&
                                 poppable <= border && border <= cache.top[c] && cache.top[c] <= cache.high[c]);
  void** const popped_end = border[-1] == nullptr && border != cache.base[c] ? border - 1 : border;
  const auto pushed = static_cast<usize>(cache.top[c] - border);
  return {poppable, static_cast<usize>(popped_end - poppable), pushed,
          static_cast<usize>(poppable - cache.base[c]) + pushed};
}

// One stack again, for the moment: the borders still stand.
FREESTONE_INLINE void join(Cache& cache, Counted& counted, SizeClass c, const Pieces& pieces) {
  counted.until_sample -= pieces.popped;
  if (pieces.poppable != counted.border) std::memmove(pieces.poppable, counted.border, pieces.pushed * sizeof(void*));
  cache.top[c] = pieces.poppable + pieces.pushed;
  // Blocks below the lowest pop were not needed.
  cache.low[c] = min_of(counted.low, pieces.poppable);
}

FREESTONE_INLINE void split(Cache& cache, Counted& counted, SizeClass c) {
  const usize at_once = max_of(kPoppableMin, kPoppableBytes / class_info(c).bytes);
  const u64 may_pop = min_of<u64>(min_of<usize>(cache.count(c), at_once), counted.until_sample - 1);
  void** top = cache.top[c];
  counted.low = cache.low[c];
  cache.low[entry_of(c)] = top - may_pop;
  cache.top[entry_of(c)] = top;
  if (top != cache.high[c]) *top++ = nullptr;  // CACHE-4; a full class takes the slow path in any case
  cache.top[c] = counted.border = top;
}

}  // namespace

void open_counted(Cache& cache, SizeClass c) {
  Counted& counted = cache.counting->of[c];
  if (cache.base[c] == nullptr) return;
  cache.high[c] = cache.base[c] + cache.capacity(c);  // CACHE-5: a counted class has room or takes a slow path anyway
  if (c < kCountedClassEnd && !cache.counting->hold_all) return split(cache, counted, c);
  counted.low = cache.low[c];
  counted.high = cache.high[c];
  cache.low[c] = cache.high[c] = cache.top[c];
}

void close_counted(Cache& cache, SizeClass c) {
  Counted& counted = cache.counting->of[c];
  if (counted.high != nullptr) {
    cache.low[c] = min_of(counted.low, cache.top[c]);
    cache.high[c] = counted.high;
    counted.high = nullptr;
  } else if (counted.border != nullptr) {
    join(cache, counted, c, pieces_of(cache, c, counted.border));
    counted.border = nullptr;
    cache.top[entry_of(c)] = cache.low[entry_of(c)] = nullptr;
  }
}

void forget_counted(Cache& cache, SizeClass c) {
  cache.counting->of[c].high = nullptr;
  cache.counting->of[c].border = nullptr;
  if (c < kCountedClassEnd) cache.top[entry_of(c)] = cache.low[entry_of(c)] = nullptr;
}

void* pop_counted(Cache& cache, SizeClass c, usize bytes) {
  Counted& counted = cache.counting->of[c];
  if (counted.high != nullptr) {
    if (cache.counting->hold_all || cache.top[c] == counted.low || sample_is_near(cache, bytes)) return nullptr;
    count_unsampled(cache, bytes);
    void* block = nullptr;
    change(cache, c, [&](Cache& own, SizeClass) {
      block = *--own.top[c];
      own.low[c] = own.high[c] = own.top[c];
    });
    return block;
  }
  if (counted.border == nullptr) return nullptr;
  const Pieces pieces = pieces_of(cache, c, counted.border);
  if (counted.until_sample <= pieces.popped + 1 || pieces.count <= kept_for_counting(cache, c)) return nullptr;
  void* block = nullptr;
  change(cache, c, [&](Cache& own, SizeClass) {
    join(own, counted, c, pieces);
    --counted.until_sample;
    block = *--own.top[c];
    own.low[c] = min_of(own.low[c], own.top[c]);
    split(own, counted, c);
  });
  return block;
}

bool push_counted(Cache& cache, SizeClass c, void* block) {
  Counted& counted = cache.counting->of[c];
  if (counted.high != nullptr) {
    if (cache.counting->hold_all || cache.top[c] == counted.high || cache.top[c][-1] == block) return false;
    change(cache, c, [&](Cache& own, SizeClass) {
      *own.top[c]++ = block;
      own.low[c] = own.high[c] = own.top[c];
    });
    return true;
  }
  if (counted.border == nullptr || cache.top[c][-1] == block) return false;
  const Pieces pieces = pieces_of(cache, c, counted.border);
  if (cache.capacity(c) - pieces.count <= kept_for_counting(cache, c)) return false;
  change(cache, c, [&](Cache& own, SizeClass) {
    join(own, counted, c, pieces);
    *own.top[c]++ = block;
    split(own, counted, c);
  });
  return true;
}

bool start_counting(Cache& cache, const SampleDistances& distances, bool hold_all, u32 epoch) {
  auto* counting = static_cast<Counting*>(take_metadata(sizeof(Counting)));
  if (counting == nullptr) return false;
  for (SizeClass c = 1; c < kCountedClassEnd; ++c)
    counting->of[c].until_sample = distances.allocations(class_info(c).bytes);
  counting->bytes_until_sample = distances.bytes();
  counting->hold_all = hold_all;
  counting->epoch = epoch;
  __atomic_store_n(&cache.counting, counting, __ATOMIC_RELEASE);  // to seen_blocks: the piece was cleared
  cache.is_plain = !hold_all;
  for (SizeClass c = 1; c < kClassEnd; ++c) change(cache, c, open_counted);
  for (Atomic<u8>& entry : cache.class_of_granules) {
    // Fails where a recall came meanwhile, which stays. Whatever its order.
    if (u8 c = entry.load_relaxed(); c < kCountedClassEnd) entry.replace_acquire(c, static_cast<u8>(entry_of(c)));
  }
  return true;
}

void answer_recall(Cache& cache) {
  // First, so that a recall during the loop is not lost.
  cache.recalled.exchange_acquire(0);
  for (usize g = 0; g < sizeof kClassOfGranules.of; ++g)
    cache.class_of_granules[g].store_relaxed(kClassOfGranules.of[g]);
  order_all();  // with set_sampling: the caller sees the mode, or the recall comes after these stores
}

void stop_counting(Cache& cache) {
  if (cache.counting == nullptr) return;
  for (SizeClass c = 1; c < kClassEnd; ++c) change(cache, c, close_counted);
  Counting* counting = cache.counting;
  cache.counting = nullptr;
  cache.is_plain = true;
  return_metadata(counting, sizeof(Counting));
}

bool count_class_allocation(Cache& cache, SizeClass c, usize bytes, const SampleDistances& distances) {
  if (c >= kCountedClassEnd) return count_bytes(cache, bytes, distances);
  bool due = false;
  change(cache, c, [&](Cache& own, SizeClass) {
    close_counted(own, c);
    due = --own.counting->of[c].until_sample == 0;
    if (due) own.counting->of[c].until_sample = distances.allocations(class_info(c).bytes);
    open_counted(own, c);
  });
  return due;
}

bool count_bytes(Cache& cache, usize bytes, const SampleDistances& distances) {
  if (!sample_is_near(cache, bytes)) {
    count_unsampled(cache, bytes);
    return false;
  }
  cache.counting->bytes_until_sample = distances.bytes();
  return true;
}

SeenBlocks seen_blocks(const Cache& cache, SizeClass c) {
  const auto look = [](void** const& place) { return __atomic_load_n(&place, __ATOMIC_RELAXED); };
  SeenBlocks seen{look(cache.base[c]), {}, {}, look(cache.top[c])};
  seen.poppable = seen.border = seen.top;
  const Counting* const counting = __atomic_load_n(&cache.counting, __ATOMIC_ACQUIRE);  // see start_counting
  void** const border = counting != nullptr && c < kCountedClassEnd ? look(counting->of[c].border) : nullptr;
  if (border != nullptr) {
    seen.poppable = look(cache.top[entry_of(c)]);
    seen.border = border;
  }
  const bool fits = seen.base <= seen.poppable && seen.poppable <= seen.border && seen.border <= seen.top &&
                    seen.top - seen.base <= class_info(c).cap_max;
  return fits ? seen : SeenBlocks{};
}

}  // namespace freestone
