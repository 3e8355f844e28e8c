// Room 8: a thread's cache stays within its bytes, gives everything back, and ends with its thread; or it outlives the
// thread, within bounds, until the next thread takes it or nobody does.
#include "cache/quarantine.h"
#include "front/reclaim.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "cache/lifetime.h"
#include "cache/slow.h"
#include "cache/transfer.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "region/account.h"
#include "span/purge.h"

#include "unit/support.h"

namespace freestone {
namespace {

usize bytes_held(const Cache& cache) {
  usize bytes = 0;
  for (SizeClass c = 1; c < kClassEnd; ++c) bytes += usize{cache.count(c)} * class_info(c).bytes;
  return bytes;
}

// This thread's, empty.
Cache* empty_cache() {
  Cache* cache = ensure_cache();
  if (cache != nullptr) flush_all(*cache);
  return cache;
}

template <usize Count>
void allocate_and_free(usize bytes) {
  void* held[Count];
  for (void*& block : held) block = allocate(bytes);
  for (void* block : held) deallocate(block);
}

TEST(cache, StaysValidAndBoundedWhateverIsPushed) {
  Cache* cache = ensure_cache();
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
      ASSERT_LE(bytes_held(*cache), options.cache_bytes);
    }
  }
  while (count > 0) deallocate(held[--count]);
  EXPECT_TRUE(cache_is_valid(*cache));
  EXPECT_LE(bytes_held(*cache), options.cache_bytes);
}

TEST(cache, AFlushLeavesNothingBehind) {
  Cache* cache = ensure_cache();
  for (int i = 0; i < 100; ++i) deallocate(allocate(static_cast<usize>(i) * 37));
  EXPECT_GT(bytes_held(*cache), 0u);
  flush_all(*cache);
  EXPECT_EQ(bytes_held(*cache), 0u);
  expect_valid_heap();
}

// Each cached block keeps a page, so a thread whose program went idle after its peak would keep many.
TEST(cache, IsEmptiedWhenTheBlocksOfTheHeapBecameFew) {
  Cache* cache = empty_cache();
  const SizeClass c = class_of(176);
  SlabUser user;
  const SizeClass many = class_of(kKiB);
  static void* peak[64 * kKiB];
  for (usize count = 0; count < std::size(peak);) {
    const usize room = min_of<usize>(64, std::size(peak) - count);
    count += take_blocks(many, user, 1, static_cast<unsigned>(room), peak + count);
  }
  for (int round = 0; round < 10; ++round) allocate_and_free<400>(176);
  ASSERT_GT(cache->count(c), 100u);
  purge_cold_pages(user, true);
  rest();
  for (usize k = 0; k < std::size(peak); ++k)
    if (k % 16 != 0) return_blocks(many, user, &peak[k], 1);
  const u64 before = cache->refills;
  while (cache->refills - before < 256 && cache->count(c) > 0) allocate_and_free<16>(32 * kKiB);
  EXPECT_EQ(cache->count(c), 0u) << "its pages stay while the program is idle";
  for (usize k = 0; k < std::size(peak); k += 16) return_blocks(many, user, &peak[k], 1);
  expect_valid_heap();
}

// Large classes fill the budget first; a small class that is used much must get its share all the same.
TEST(cache, TheBudgetGoesToTheClassesThatAreInUse) {
  Cache* cache = empty_cache();
  const auto use_large = [] {
    static void* held[64];
    usize count = 0;
    for (usize bytes = 4 * kKiB; bytes <= 64 * kKiB; bytes += 4 * kKiB) held[count++] = allocate(bytes);
    while (count > 0) deallocate(held[--count]);
  };
  for (int round = 0; round < 20; ++round) use_large();
  EXPECT_GT(cache->capacity_bytes, kCacheBytesFloor) << "the budget was to be spent";
  const SizeClass c = class_of(112);
  for (int round = 0; round < 300; ++round) {
    allocate_and_free<60>(112);
    if (round % 10 == 0) use_large();
  }
  EXPECT_GE(cache->capacity(c), 30u);
  EXPECT_LE(cache->capacity_bytes, options.cache_bytes);
  EXPECT_TRUE(cache_is_valid(*cache));
}

// Medium blocks replaced at random: a class misses and fills in turn, so the thread takes all that its budget allows.
// Returns the most that was charged meanwhile.
template <usize Live>
usize replace_medium_blocks() {
  static void* held[Live];
  usize charged = 0;
  Random random(3);
  for (void*& block : held) block = allocate(random.between(4 * kKiB, 32 * kKiB));
  for (int step = 0; step < 30'000; ++step) {
    void*& block = held[random.below(Live)];
    deallocate(block);
    block = allocate(random.between(4 * kKiB, 32 * kKiB));
    charged = max_of(charged, account.charged.load_relaxed());
  }
  for (void* block : held) deallocate(block);
  return charged;
}

TEST(cache, HoldsMoreOnlyBesideALargeHeap) {
  Cache* cache = ensure_cache();
  trim(0);
  const usize charged = replace_medium_blocks<25>();
  const usize beside_small = cache->capacity_bytes;
  EXPECT_LE(beside_small, max_of(kCacheBytesFloor, charged / kCacheNeededDivisor));
  static void* heap[64];
  for (void*& block : heap) block = allocate(kMiB);
  // More than once: on a slow machine the cache may be emptied meanwhile, since blocks of an earlier test became few.
  for (int k = 0; k < 4 && cache->capacity_bytes <= 2 * beside_small; ++k) replace_medium_blocks<100>();
  EXPECT_GT(cache->capacity_bytes, 2 * beside_small);
  EXPECT_LE(cache->capacity_bytes, options.cache_bytes);
  for (void* block : heap) deallocate(block);
  flush_all(*cache);
  EXPECT_EQ(cache->capacity_bytes, 0u);
}

// A program that grows, shrinks and goes idle must not keep more than its share; one that replaces its blocks would
// else miss at each call.
TEST(cache, ExceedsItsShareOfTheHeapOnlyForClassesThatRunFullAndEmptyInTurns) {
  empty_cache();
  trim(0);
  Cache* cache = ensure_cache();
  for (Misses& misses : cache->misses) misses = {};  // of other tests
  const usize others = all_capacity_bytes.load_relaxed() - cache->capacity_bytes;
  const auto percent = std::exchange(options.give_back_percent, 0u);  // the heap stays as large
  static void* held[100];
  usize charged = 0;
  for (int round = 0; round < 2; ++round) {
    for (usize k = 0; k < std::size(held); ++k) held[k] = allocate((4 + k % 29) * kKiB);
    charged = max_of(charged, account.charged.load_relaxed());
    for (void* block : held) deallocate(block);
  }
  EXPECT_LE(cache->capacity_bytes + others, charged / kCacheHeapDivisor);
  usize most = 0;
  // More than once, as above.
  for (int k = 0; k < 4 && most <= account.charged.load_relaxed() / kCacheHeapDivisor; ++k) {
    replace_medium_blocks<100>();
    most = cache->capacity_bytes + others;
  }
  EXPECT_GT(most, account.charged.load_relaxed() / kCacheHeapDivisor);
  EXPECT_LE(most, account.charged.load_relaxed() / kCacheNeededDivisor);
  EXPECT_TRUE(cache_is_valid(*cache));
  options.give_back_percent = percent;
}

// A class whose blocks are small, or that turns, has 7 of them wherever the heap is not tiny.
TEST(cache, KeepsTheFirstBlocksOfAClassThatTurns) {
  Cache* cache = empty_cache();
  const SizeClass c = class_of(4 * kKiB);
  void* beside[64];
  for (void*& block : beside) block = allocate(32 * kKiB);
  for (int round = 0; round < 100; ++round) allocate_and_free<6>(4 * kKiB);
  const u64 before = cache->refills;
  for (int round = 0; round < 100; ++round) allocate_and_free<6>(4 * kKiB);
  EXPECT_GE(cache->capacity(c), 6u);
  EXPECT_LE(cache->refills - before, 10u);
  for (void* block : beside) deallocate(block);
}

TEST(cache, KeepsOneRunForItself) {
  constexpr usize kBytes = 200 * kKiB;
  Cache* cache = empty_cache();
  void* first = allocate(kBytes);
  void* second = allocate(kBytes);
  deallocate(first);
  EXPECT_EQ(cache->run.units.load_relaxed(), bytes_to_units(kBytes));
  EXPECT_EQ(held_runs().bytes, units_to_bytes(bytes_to_units(kBytes)));
  EXPECT_EQ(allocate(kBytes), first);
  EXPECT_EQ(held_runs().runs, 0u);
  deallocate(first);
  deallocate(second);
  EXPECT_EQ(unit_address(cache->run.first), second) << "the newer one is kept";
  flush_all(*cache);
  EXPECT_EQ(held_runs().runs, 0u);
  const auto decay_ms = std::exchange(options.dirty_decay_ms, 0u);
  deallocate(allocate(kBytes));
  EXPECT_EQ(held_runs().runs, 0u) << "nothing is kept where free memory goes at once";
  EXPECT_EQ(kept_units.load_relaxed(), 0u);
  options.dirty_decay_ms = decay_ms;
  expect_valid_heap();
}

usize in_transfer(SizeClass c) {
  usize counts[kClassEnd] = {};
  count_transfer(counts);
  return counts[c];
}

// What one thread frees another allocates again without a look at the slabs, and what nobody wants goes back to them.
TEST(cache, TheBinsHandBlocksFromTheThreadThatFreesToTheOneThatAllocates) {
  if (!kHandsBlocksOn) GTEST_SKIP() << "blocks go back to their slabs there";
  constexpr usize kBytes = 3000;
  constexpr usize kBlocks = 100;
  const SizeClass c = class_of(kBytes);
  Cache* own = empty_cache();
  give_back_cold(own, true);  // else a tick of the clock may do it below, and empty the other thread's array
  void* first[kBlocks];
  for (void*& block : first) block = allocate(kBytes);
  const usize bin_max = kTransferBytesPerBin / class_info(c).bytes;
  run_threads(1, [&](unsigned) {
    flush_all(*ensure_cache());  // an ended thread's, whose classes may have spent the budget
    for (void* block : first) deallocate(block);
    EXPECT_GT(in_transfer(c), 0u);
    EXPECT_LE(in_transfer(c), bin_max);
    void* taken[kBlocks];
    const unsigned got = take_from_transfer(c, own->user.shard, kBlocks, taken);
    EXPECT_GT(got, 0u) << "from the other thread's shard, too";
    for (unsigned i = 0; i < got; ++i) EXPECT_NE(std::find(first, first + kBlocks, taken[i]), first + kBlocks);
    EXPECT_EQ(in_transfer(c), 0u);
    EXPECT_EQ(give_to_transfer(c, own->user.shard, taken, got), got);
    EXPECT_EQ(in_transfer(c), got);
    drain_transfer(own->user, false);
    EXPECT_EQ(in_transfer(c), got) << "what came since the last drain stays";
    drain_transfer(own->user, false);
    EXPECT_EQ(in_transfer(c), 0u);
  });
  flush_all(*own);
  expect_valid_heap();
}

TEST(cache, TrimEmptiesTheBinsBetweenThreads) {
  const SizeClass c = class_of(3584);
  run_threads(1, [&](unsigned) {
    Cache* cache = ensure_cache();
    void* blocks[4];
    for (void*& block : blocks) ASSERT_EQ(take_blocks(c, cache->user, 1, 1, &block), 1u);
    ASSERT_EQ(give_to_transfer(c, cache->user.shard, blocks, 4), 4u);
    ASSERT_EQ(in_transfer(c), 4u);
    trim(0);
    EXPECT_EQ(in_transfer(c), 0u);
  });
}

// Two threads end at once beside one that stays: whoever is last drains the bins.
TEST(cache, ThreadsThatEndAtOnceLeaveNothingInTheBins) {
  const SizeClass c = class_of(3584);
  empty_cache();
  for (u64 round = 0; round < scaled(1000); ++round) {
    std::atomic<int> ready{0};
    run_threads(2, [&](unsigned) {
      Cache* cache = ensure_cache();
      void* block = nullptr;
      take_blocks(c, cache->user, 1, 1, &block);
      if (give_to_transfer(c, cache->user.shard, &block, 1) == 0) return_blocks(c, cache->user, &block, 1);
      ++ready;
      while (ready != 2) std::this_thread::yield();
    });
    ASSERT_EQ(in_transfer(c), 0u) << "round " << round;
  }
}

TEST(cache, EndsWithItsThreadAndGivesItsBlocksBack) {
  const SizeClass c = class_of(3584);
  empty_cache();
  const usize outside = blocks_outside(c);
  const usize caches = cache_count();
  for (int round = 0; round < 20; ++round) run_threads(4, [](unsigned) { allocate_and_free<50>(3584); });
  release_parked_caches();
  EXPECT_EQ(cache_count(), caches);
  EXPECT_EQ(blocks_outside(c), outside);
  expect_valid_heap();
}

constexpr usize kRequestBytes = 1000;
const SizeClass kParkedClass = class_of(kRequestBytes + kHeldBackBytes);

// The thread ends with some blocks in its cache.
void use_and_end() { allocate_and_free<30>(kRequestBytes); }

// Nothing is parked, and this thread has a cache: the end of a thread with the only one is not seen.
void begin_parking() {
  ASSERT_NE(ensure_cache(), nullptr);
  release_parked_caches();
  ASSERT_EQ(parked_caches().caches, 0u);
}

TEST(cache, TheNextThreadTakesAParkedOneOverWithItsBlocks) {
  begin_parking();
  const Cache* first = nullptr;
  usize left = 0;
  std::thread([&] {
    use_and_end();
    first = ensure_cache();
    left = first->count(kParkedClass);
  }).join();
  ASSERT_GT(left, 0u);
  EXPECT_EQ(parked_caches().caches, 1u);
  std::thread([&] {
    const Cache* second = ensure_cache();
    EXPECT_EQ(second, first);
    EXPECT_EQ(second->count(kParkedClass), left);
    EXPECT_TRUE(cache_is_valid(*second));
  }).join();
  release_parked_caches();
  expect_valid_heap();
}

TEST(cache, NoTwoThreadsTakeTheSameParkedOne) {
  begin_parking();
  for (u64 round = 0; round < scaled(50); ++round) {
    std::atomic<unsigned> ready{0};
    Cache* seen[4] = {};
    run_threads(4, [&](unsigned k) {
      use_and_end();
      seen[k] = ensure_cache();
      ++ready;
      while (ready != 4) std::this_thread::yield();
    });
    for (int a = 0; a < 4; ++a)
      for (int b = 0; b < a; ++b) ASSERT_NE(seen[a], seen[b]) << round;
  }
  EXPECT_GE(parked_caches().caches, 1u);
  release_parked_caches();
  expect_valid_heap();
}

TEST(cache, ParkedOnesKeepNoMoreThanTheirBytesAndPlaces) {
  begin_parking();
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

TEST(cache, AParkedOneThatNobodyTakesGoesBackAfterAHalfLife) {
  begin_parking();
  const usize outside = blocks_outside(kParkedClass);
  std::thread(use_and_end).join();
  EXPECT_GT(blocks_outside(kParkedClass), outside);
  release_parked_caches(3'600'000);
  EXPECT_EQ(parked_caches().caches, 1u);
  const auto before = options.dirty_decay_ms;
  options.dirty_decay_ms = 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  tick(ensure_cache());
  options.dirty_decay_ms = before;
  EXPECT_EQ(parked_caches().caches, 0u);
  EXPECT_EQ(blocks_outside(kParkedClass), outside);
}

TEST(cache, NothingIsParkedWhereFreeMemoryGoesBackAtOnce) {
  begin_parking();
  const auto before = options.dirty_decay_ms;
  options.dirty_decay_ms = 0;
  std::thread(use_and_end).join();
  options.dirty_decay_ms = before;
  EXPECT_EQ(parked_caches().caches, 0u);
}

TEST(cache, TrimReleasesParkedOnes) {
  begin_parking();
  std::thread(use_and_end).join();
  ASSERT_GE(parked_caches().caches, 1u);
  trim(0);
  EXPECT_EQ(parked_caches().caches, 0u);
}

// The child drains what its parent had parked; no thread of the child takes it.
TEST(cache, TheChildOfAForkDrainsParkedOnes) {
  begin_parking();
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
