// Room 8: a thread's cache stays within its bytes, gives everything back, and ends with its thread.
#include "cache/cache.h"

#include <memory>

#include "unit/support.h"

namespace freestone {
namespace {

usize bytes_held(const Cache& cache) {
  usize bytes = 0;
  for (SizeClass c = 1; c < kClassEnd; ++c) bytes += usize{cache.count(c)} * class_info(c).bytes;
  return bytes;
}

TEST(cache, StaysValidAndBoundedWhateverIsPushed) {
  Cache* cache = ensure_cache();
  ASSERT_NE(cache, nullptr);
  Random random(test_seed("cache"));
  static void* held[4000];
  usize count = 0;
  for (u64 step = 0; step < scaled(200'000); ++step) {
    // Phases of growth and of decline, so that classes open, fill, sink and close.
    const bool take = count == 0 || (count < 4000 && random.below(10) < (step / 5000 % 2 == 0 ? 7 : 3));
    if (take) {
      held[count] = allocate(random.log_uniform(1, 64.0 * kKiB));
      ASSERT_NE(held[count++], nullptr);
    } else {
      const usize i = random.below(count);
      deallocate(held[i]);
      held[i] = held[--count];
    }
    if (step % 500 == 0) {
      ASSERT_TRUE(cache_is_valid(*cache));
      ASSERT_LE(bytes_held(*cache), kCacheBytesPerThread);
    }
  }
  while (count > 0) deallocate(held[--count]);
  EXPECT_TRUE(cache_is_valid(*cache));
  EXPECT_LE(bytes_held(*cache), kCacheBytesPerThread);
}

TEST(cache, AFlushLeavesNothingBehind) {
  Cache* cache = ensure_cache();
  ASSERT_NE(cache, nullptr);
  for (int i = 0; i < 100; ++i) deallocate(allocate(static_cast<usize>(i) * 37));
  EXPECT_GT(bytes_held(*cache), 0u);
  flush_all(*cache);
  EXPECT_EQ(bytes_held(*cache), 0u);
  expect_valid_heap();
}

TEST(cache, EndsWithItsThreadAndGivesItsBlocksBack) {
  const SizeClass c = class_of(3584);
  flush_all(*ensure_cache());
  const usize outside = blocks_outside(c);
  const usize caches = cache_count();
  for (int round = 0; round < 20; ++round) {
    run_threads(4, [&](unsigned) {
      static thread_local void* mine[50];
      for (void*& block : mine) block = allocate(3584);
      for (void* block : mine) deallocate(block);
    });
  }
  EXPECT_EQ(cache_count(), caches);
  EXPECT_EQ(blocks_outside(c), outside);
  expect_valid_heap();
}

}  // namespace
}  // namespace freestone
