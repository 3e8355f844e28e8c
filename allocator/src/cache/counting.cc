// Room 8, cache: see counting.h.

#include "cache/counting.h"

#include <cstring>

#include "region/metadata.h"

namespace freestone {

namespace {

constexpr SizeClass entry_of(SizeClass size_class) { return kCountedEntry + size_class; }

// A class of which the array is at work must not be drained by the child of a fork.
template <typename Work>
void change(Cache& cache, SizeClass c, Work work) {
  cache.changing.store_relaxed(static_cast<u8>(c));
  work(cache, c);
  cache.changing.store_relaxed(0);
}

}  // namespace

void open_counted(Cache& cache, SizeClass c) {
  Counting& counting = *cache.counting;
  if (cache.base[c] == nullptr) return;
  counting.low[c] = cache.low[c];
  if (c >= kTableClassEnd || counting.hold_all) {
    counting.high[c] = cache.high[c];
    cache.low[c] = cache.high[c] = cache.top[c];
    counting.held[c] = true;
    return;
  }
  const u64 may_pop = min_of<u64>(cache.count(c), counting.until_sample[c] - 1);
  cache.low[entry_of(c)] = cache.top[c] - may_pop;
  cache.top[entry_of(c)] = cache.top[c];
  if (cache.top[c] != cache.high[c]) *cache.top[c]++ = nullptr;  // CACHE-4; a full class takes the slow path in any case
  counting.mark[c] = cache.top[c];
}

void close_counted(Cache& cache, SizeClass c) {
  Counting& counting = *cache.counting;
  if (counting.held[c]) {
    counting.held[c] = false;
    cache.low[c] = counting.low[c];
    cache.high[c] = counting.high[c];
    if (cache.low[c] > cache.top[c]) cache.low[c] = cache.top[c];
    return;
  }
  void** const mark = c < kTableClassEnd ? counting.mark[c] : nullptr;
  if (mark == nullptr) return;
  void** const poppable = cache.top[entry_of(c)];
  const auto pushed = static_cast<usize>(cache.top[c] - mark);
  void** const popped_end = mark[-1] == nullptr && mark != cache.base[c] ? mark - 1 : mark;
  counting.until_sample[c] -= static_cast<u64>(popped_end - poppable);
  if (poppable != mark) std::memmove(poppable, mark, pushed * sizeof(void*));
  counting.mark[c] = nullptr;
  cache.top[c] = poppable + pushed;
  // Blocks below the lowest pop were not needed.
  cache.low[c] = min_of(counting.low[c], poppable);
  cache.top[entry_of(c)] = cache.low[entry_of(c)] = nullptr;
}

void forget_counted(Cache& cache, SizeClass c) {
  cache.counting->held[c] = false;
  if (c >= kTableClassEnd) return;
  cache.counting->mark[c] = nullptr;
  cache.top[entry_of(c)] = cache.low[entry_of(c)] = nullptr;
}

bool start_counting(Cache& cache, const SampleDistances& distances, bool hold_all, u32 epoch) {
  auto* counting = static_cast<Counting*>(take_metadata(sizeof(Counting)));
  if (counting == nullptr) return false;
  for (SizeClass c = 1; c < kTableClassEnd; ++c) counting->until_sample[c] = distances.allocations(class_info(c).bytes);
  counting->bytes_until_sample = distances.bytes();
  counting->hold_all = hold_all;
  counting->epoch = epoch;
  cache.counting = counting;
  cache.is_plain = !hold_all;
  for (SizeClass c = 1; c < kClassEnd; ++c) change(cache, c, open_counted);
  for (u8& c : cache.class_of_granules) c = static_cast<u8>(entry_of(c));
  return true;
}

void stop_counting(Cache& cache) {
  if (cache.counting == nullptr) return;
  for (u8& c : cache.class_of_granules) c = static_cast<u8>(c - kCountedEntry);
  for (SizeClass c = 1; c < kClassEnd; ++c) change(cache, c, close_counted);
  Counting* counting = cache.counting;
  cache.counting = nullptr;
  cache.is_plain = true;
  return_metadata(counting, sizeof(Counting));
}

bool count_class_allocation(Cache& cache, SizeClass c, usize bytes, const SampleDistances& distances) {
  if (c >= kTableClassEnd) return count_bytes(cache, bytes, distances);
  bool due = false;
  change(cache, c, [&](Cache& own, SizeClass) {
    close_counted(own, c);
    due = --own.counting->until_sample[c] == 0;
    if (due) own.counting->until_sample[c] = distances.allocations(class_info(c).bytes);
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

unsigned counted_hole(const Cache& cache, SizeClass c) {
  const Counting* counting = cache.counting;
  if (counting == nullptr || c >= kTableClassEnd || counting->mark[c] == nullptr) return 0;
  const auto hole = counting->mark[c] - cache.top[entry_of(c)];
  return hole > 0 && hole <= static_cast<i64>(cache.count(c)) ? static_cast<unsigned>(hole) : 0;
}

}  // namespace freestone
