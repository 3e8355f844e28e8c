// Room 8: a cache outlives its thread, within bounds, until the next thread takes it or nobody does.
#include "cache/lifetime.h"

#include <atomic>
#include <thread>

#include "cache/slow.h"
#include "config/options.h"
#include "region/account.h"

#include "unit/support.h"

namespace freestone {
namespace {

constexpr usize kBytes = 1000;
const SizeClass kClass = class_of(kBytes + kHeldBackBytes);

usize cached(const Cache& cache, SizeClass c) { return cache.count(c); }

// The thread ends with some blocks in its cache.
void use_and_end() {
  static thread_local void* mine[30];
  for (void*& block : mine) block = allocate(kBytes);
  for (void* block : mine) deallocate(block);
}

// Nothing is parked, and this thread has a cache: the end of a thread with the only one is not seen.
void begin() {
  ASSERT_NE(ensure_cache(), nullptr);
  release_parked_caches();
  ASSERT_EQ(parked_caches().caches, 0u);
}

TEST(cache_parking, TheNextThreadTakesTheCacheOverWithItsBlocks) {
  begin();
  const Cache* first = nullptr;
  usize left = 0;
  std::thread([&] {
    use_and_end();
    first = ensure_cache();
    left = cached(*first, kClass);
  }).join();
  ASSERT_GT(left, 0u);
  EXPECT_EQ(parked_caches().caches, 1u);
  std::thread([&] {
    const Cache* second = ensure_cache();
    EXPECT_EQ(second, first);
    EXPECT_EQ(cached(*second, kClass), left);
    EXPECT_TRUE(cache_is_valid(*second));
  }).join();
  release_parked_caches();
  expect_valid_heap();
}

TEST(cache_parking, NoTwoThreadsTakeTheSameCache) {
  begin();
  for (u64 round = 0; round < scaled(50); ++round) {
    std::atomic<unsigned> ready{0};
    Cache* seen[4] = {};
    run_threads(4, [&](unsigned k) {
      use_and_end();
      seen[k] = ensure_cache();
      ++ready;
      while (ready != 4) std::this_thread::yield();
    });
    for (int a = 0; a < 4; ++a) {
      for (int b = 0; b < a; ++b) ASSERT_NE(seen[a], seen[b]) << round;
    }
  }
  EXPECT_GE(parked_caches().caches, 1u);
  release_parked_caches();
  expect_valid_heap();
}

TEST(cache_parking, KeepsNoMoreThanItsBytesAndPlaces) {
  begin();
  std::atomic<unsigned> ready{0};
  run_threads(40, [&](unsigned) {
    use_and_end();
    ++ready;
    while (ready != 40) std::this_thread::yield();
  });
  const ParkedCaches parked = parked_caches();
  EXPECT_GE(parked.caches, 4u);
  EXPECT_LE(parked.caches, 16u);
  EXPECT_LE(parked.capacity_bytes, kMiB + account.charged.load_relaxed() / 16);
  release_parked_caches();
  EXPECT_EQ(parked_caches().caches, 0u);
  expect_valid_heap();
}

TEST(cache_parking, WhatNobodyTakesGoesBackAfterAHalfLife) {
  begin();
  const usize outside = blocks_outside(kClass);
  std::thread(use_and_end).join();
  EXPECT_GT(blocks_outside(kClass), outside);
  release_parked_caches(3'600'000);
  EXPECT_EQ(parked_caches().caches, 1u);
  const auto before = options.dirty_decay_ms;
  options.dirty_decay_ms = 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  tick(ensure_cache());
  options.dirty_decay_ms = before;
  EXPECT_EQ(parked_caches().caches, 0u);
  EXPECT_EQ(blocks_outside(kClass), outside);
}

TEST(cache_parking, NothingIsParkedWhereFreeMemoryGoesBackAtOnce) {
  begin();
  const auto before = options.dirty_decay_ms;
  options.dirty_decay_ms = 0;
  std::thread(use_and_end).join();
  options.dirty_decay_ms = before;
  EXPECT_EQ(parked_caches().caches, 0u);
}

TEST(cache_parking, TrimReleasesIt) {
  begin();
  std::thread(use_and_end).join();
  ASSERT_GE(parked_caches().caches, 1u);
  trim(0);
  EXPECT_EQ(parked_caches().caches, 0u);
}

// The child drains what its parent had parked; no thread of the child takes it.
TEST(cache_parking, TheChildOfAForkDrainsIt) {
  begin();
  std::thread(use_and_end).join();
  ASSERT_EQ(parked_caches().caches, 1u);
  EXPECT_EQ(fork_and([] {
              bool begins_empty = false;
              std::thread([&] { begins_empty = ensure_cache()->capacity_bytes == 0; }).join();
              const bool is_drained = parked_caches().caches == 1;  // the thread's own
              std::thread(use_and_end).join();
              return begins_empty && is_drained && parked_caches().caches == 1 ? 0 : 1;
            }),
            0);
  release_parked_caches();
}

}  // namespace
}  // namespace freestone
