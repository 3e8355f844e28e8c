// Limits: exact, never exceeded, never fatal, and what is freed at the limit can be had again in another shape.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "api/support.h"

namespace freestone_test {
namespace {

using Limits = NoLimitsLeft;

// Allocates until null into blocks that have room for all that the limit allows. Returns their usable bytes.
size_t fill(Blocks& blocks, size_t block_bytes) {
  size_t bytes = 0;
  while (blocks.size() < blocks.capacity()) {
    errno = 0;
    void* block = malloc(block_bytes);
    if (block == nullptr) {
      EXPECT_EQ(errno, ENOMEM);
      return bytes;
    }
    memset(block, 1, block_bytes);
    blocks.push_back(block);
    bytes += malloc_usable_size(block);
  }
  ADD_FAILURE() << "no allocation failed though " << blocks.size() << " blocks of " << block_bytes
                << " exceed the limit";
  return bytes;
}

TEST_F(Limits, AreReachedWithinOnePerCentAndNeverExceeded) {
  constexpr size_t kLimit = 64 * kMiB;
  for (const size_t bytes : {16UL, 100UL, 1000UL, 5000UL, 40000UL, 200000UL}) {
    Blocks got;
    got.reserve(kLimit / bytes + 1);
    malloc_trim(0);
    ASSERT_EQ(set_limits(0, kLimit), 0);
    fill(got, bytes);
    const freestone_stats s = stats();
    set_limits(0, 0);  // a failed expectation allocates
    EXPECT_LE(s.charged_bytes, kLimit) << bytes;
    EXPECT_GE(s.charged_bytes, kLimit - kLimit / 100) << bytes;
    EXPECT_GT(s.failed_allocations, 0U);
    EXPECT_EQ(s.limit_hard_bytes, kLimit);
  }
}

TEST_F(Limits, BoundTheResidentSetOfTheProcess) {
  constexpr size_t kLimit = 64 * kMiB;
  const auto resident_now = [] { return said_bytes("/proc/self/status", "RssAnon:"); };
  Blocks got;
  got.reserve(kLimit / 3000 + 1);
  malloc_trim(0);
  const size_t before = resident_now();
  const uint64_t charged = stats().charged_bytes;
  ASSERT_EQ(set_limits(0, kLimit), 0);
  fill(got, 3000);
  // What was resident and not charged for belongs to the program.
  const size_t others = before > charged ? before - charged : 0;
  const size_t resident = resident_now();
  set_limits(0, 0);
  EXPECT_LE(resident, kLimit + kLimit / 100 + others);
  // Guards between blocks are charged for and never touched.
  if (!is_hardened()) {
    EXPECT_GE(resident, kLimit / 10 * 9) << "the blocks were touched";
  }
}

// Also run with guard_sample, where freed blocks keep their units to be recognised: 10,000 of them would be 160 MiB.
// GUARD-1: what takes their place can be written to.
TEST_F(Limits, FreedGuardedBlocksGiveWay) {
  constexpr size_t kLimit = 64 * kMiB;
  malloc_trim(0);
  ASSERT_EQ(set_limits(0, kLimit), 0);
  size_t refused = 0;
  uint64_t highest = 0;
  for (int i = 0; i < 40000; ++i) {
    void* block = malloc(1000);
    refused += block == nullptr;
    if (block != nullptr) memset(block, 1, 1000);
    if (i % 1000 == 0) highest = std::max(highest, stats().charged_bytes);
    free(block);
  }
  set_limits(0, 0);
  EXPECT_EQ(refused, 0U);
  EXPECT_LE(highest, kLimit);
}

// Free half at the limit, allocate in another class what was freed: at least nine tenths of it must fit.
TEST_F(Limits, WhatIsFreedAtTheLimitCanBeHadInAnotherClass) {
  constexpr size_t kLimit = 64 * kMiB;
  constexpr size_t kShapes[][2] = {{16, 64},      {64, 16},      {48, 3000},    {3000, 48},  {1024, 20000},
                                   {20000, 1024}, {100, 300000}, {300000, 100}, {60000, 700}};
  for (const auto& [first, second] : kShapes) {
    malloc_trim(0);
    Blocks firsts, seconds;
    seconds.reserve(kLimit / second + 1);
    firsts.reserve(kLimit / first + 1);
    ASSERT_EQ(set_limits(0, kLimit), 0);
    const size_t total = fill(firsts, first);
    size_t freed = 0;
    while (freed < total / 2) {
      freed += malloc_usable_size(firsts.back());
      firsts.free_last();
    }
    const size_t again = fill(seconds, second);
    const uint64_t charged = stats().charged_bytes;
    set_limits(0, 0);
    // The hardened build holds freed blocks back before they can be anything else.
    EXPECT_GE(again, is_hardened() ? freed / 5 * 2 : freed / 10 * 9) << first << " -> " << second;
    EXPECT_LE(charged, kLimit);
  }
}

TEST_F(Limits, OtherThreadsGiveTheirCachesBackUnderPressure) {
  constexpr size_t kLimit = 48 * kMiB;
  std::atomic<int> ready{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&](const std::stop_token& stop) {
      for (int round = 0; round < 20; ++round) Blocks(2000, 128).release();
      ++ready;
      // A trickle of slow paths, as a working thread has it.
      while (!stop.stop_requested()) {
        void* held[64];
        for (void*& block : held) block = malloc(9000);
        for (void* block : held) free(block);
        std::this_thread::yield();
      }
    });
  }
  while (ready < 8) std::this_thread::yield();
  const uint64_t cached = stats().thread_cached_bytes;
  Blocks blocks;  // never grown at the limit, where it would throw
  blocks.reserve(kLimit / 20000 + 1);
  EXPECT_EQ(set_limits(0, kLimit), 0);
  uint64_t least = cached;
  while (least > cached / 2) {  // what never comes is ended by the test's time limit
    fill(blocks, 20000);
    least = std::min<uint64_t>(least, stats().thread_cached_bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // each thread acts at its own next slow path
  }
  EXPECT_LE(least, cached / 2);
}

TEST_F(Limits, SoftGivesBackAndGoesOn) {
  malloc_trim(0);
  const uint64_t start = stats().charged_bytes;
  ASSERT_EQ(set_limits(start + 16 * kMiB, 0), 0);
  const freestone_stats before = stats();
  Blocks blocks;
  for (int i = 0; i < 400; ++i) {
    void* block = malloc(200000);
    ASSERT_NE(block, nullptr) << "a soft limit refuses nothing";
    memset(block, 1, 200000);
    if (i % 2 == 1) blocks.free_last();
    blocks.push_back(block);
  }
  const freestone_stats after = stats();
  EXPECT_GT(after.soft_limit_crossings, before.soft_limit_crossings);
  EXPECT_GT(after.purged_bytes, before.purged_bytes);
  EXPECT_LE(after.dirty_bytes, 2 * kMiB) << "what is free went back";
}

TEST_F(Limits, BelowWhatIsHeldGiveBackAtOnceAndOnlyForbidGrowth) {
  Blocks blocks(300, 100000);
  const uint64_t held = stats().charged_bytes;
  ASSERT_EQ(set_limits(0, held / 2), 0);
  EXPECT_EQ(malloc(100000), nullptr);
  for (int i = 0; i < 250; ++i) blocks.free_last();
  void* block = malloc(100000);
  EXPECT_NE(block, nullptr);
  free(block);
}

TEST_F(Limits, RefuseEachKindOfRequestWithoutHarm) {
  malloc_trim(0);
  ASSERT_EQ(set_limits(0, stats().charged_bytes + 8 * kMiB), 0);
  for (const size_t bytes : {16 * kMiB, 64 * kMiB, size_t{1} << 40}) {
    errno = 0;
    EXPECT_EQ(malloc(bytes), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(calloc(bytes, 1), nullptr);
    EXPECT_EQ(aligned_alloc(4096, bytes), nullptr);
    void* block = nullptr;
    EXPECT_EQ(posix_memalign(&block, 64, bytes), ENOMEM);
  }
  char* small = static_cast<char*>(malloc(1000));
  ASSERT_NE(small, nullptr);
  memset(small, 7, 1000);
  EXPECT_EQ(realloc(small, 64 * kMiB), nullptr);
  EXPECT_EQ(small[999], 7) << "a refused realloc leaves the block";
  free(small);
  char* large = static_cast<char*>(malloc(4 * kMiB));
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(realloc(large, 40 * kMiB), nullptr);
  auto* grown = static_cast<char*>(realloc(large, 5 * kMiB));
  ASSERT_NE(grown, nullptr) << "growing in place within the limit works";
  free(grown);
}

TEST_F(Limits, AShrinkThatFindsNoMemoryKeepsErrno) {
  constexpr size_t kLimit = 8 * kMiB;
  malloc_trim(0);
  Blocks blocks, small;
  for (const size_t bytes : {size_t{20000}, size_t{100000}, size_t{700000}, 3 * kMiB}) blocks.take(1, bytes);
  small.reserve(2 * kLimit / 100 + 1);
  ASSERT_EQ(set_limits(0, stats().charged_bytes + kLimit), 0);
  fill(small, 100);
  for (void*& block : blocks) {
    errno = 0;
    void* const shrunk = realloc(block, 100);
    EXPECT_EQ(errno, shrunk == nullptr ? ENOMEM : 0);
    if (shrunk != nullptr) block = shrunk;
  }
}

// free needs no memory: with every allocation refused, all blocks can be freed from a thread that never allocated.
TEST_F(Limits, FreeNeedsNoMemory) {
  Blocks blocks;
  for (int i = 0; i < 200000; ++i) blocks.push_back(malloc(1 + static_cast<size_t>(i) % 3000));
  const uint64_t live = stats().live_blocks;
  ASSERT_EQ(set_limits(0, 4096), 0);
  std::thread([&] { blocks.release(); }).join();
  set_limits(0, 0);
  EXPECT_LE(stats().live_blocks, live - 200000 + 64);
}

TEST_F(Limits, CheckTheirArguments) {
  EXPECT_EQ(set_limits(2 * kMiB, kMiB), EINVAL);
  EXPECT_EQ(freestone_set_limits(nullptr), EINVAL);
  freestone_limits wrong{FREESTONE_LIMITS_VERSION + 1, 0, 0, 0};
  EXPECT_EQ(freestone_set_limits(&wrong), EINVAL);
  EXPECT_EQ(freestone_get_limits(&wrong), EINVAL);
  ASSERT_EQ(set_limits(kMiB, 1024 * kMiB), 0);
  freestone_limits now{FREESTONE_LIMITS_VERSION, 0, 0, 0};
  EXPECT_EQ(freestone_get_limits(&now), 0);
  EXPECT_EQ(now.soft_bytes, kMiB);
  EXPECT_EQ(now.hard_bytes, 1024 * kMiB);
}

TEST_F(Limits, CanBeSetAsOptionsAtRunTime) {
  EXPECT_EQ(freestone_option_set("limit_hard", "300m"), 0);
  EXPECT_EQ(stats().limit_hard_bytes, 300 * kMiB);
  EXPECT_EQ(freestone_option_set("limit_soft", "400m"), EINVAL) << "above the hard one";
  EXPECT_EQ(option("limit_soft"), "0");
  EXPECT_EQ(freestone_option_set("limit_hard", "101%"), EINVAL);
  EXPECT_EQ(freestone_option_set("limit_hard", "lots"), EINVAL);
  EXPECT_EQ(freestone_option_set("limit_hard", "50%"), 0);
  EXPECT_GT(stats().limit_hard_bytes, 0U);
  EXPECT_EQ(option("limit_hard"), "50%");
  EXPECT_EQ(freestone_option_set("limit_hard", "0"), 0);
  EXPECT_EQ(stats().limit_hard_bytes, 0U);
}

struct Block {
  unsigned char* address = nullptr;
  size_t bytes = 0;

  void mark() {
    memset(address, static_cast<int>(bytes), std::min<size_t>(bytes, 64));
    address[bytes - 1] = static_cast<unsigned char>(bytes);
  }
  bool is_marked() const {
    const auto with = static_cast<unsigned char>(bytes);
    return address[0] == with && address[bytes - 1] == with;
  }
};

// Allocates, frees and resizes until `operations` are done. Returns the number of refusals.
unsigned work(uint64_t seed, unsigned operations, unsigned largest) {
  Random random(seed);
  Block blocks[256];
  unsigned refused = 0;
  for (unsigned i = 0; i < operations; ++i) {
    Block& b = blocks[random.below(256)];
    const size_t bytes = random_size(random, largest);
    const uint64_t way = random.below(12);
    void* block = nullptr;
    if (b.address != nullptr) {
      EXPECT_TRUE(b.is_marked()) << "seed " << seed;
      if (way >= 4) {
        free(b.address);
        b = {};
        continue;
      }
      block = realloc(b.address, bytes);
    } else if (way < 3) {
      block = calloc(1, bytes);
    } else if (way < 6) {
      block = aligned_alloc(size_t{16} << random.below(9), bytes);
    } else {
      block = malloc(bytes);
    }
    if (block == nullptr) {
      ++refused;
      continue;
    }
    b = {static_cast<unsigned char*>(block), bytes};
    b.mark();
  }
  for (const Block& b : blocks) free(b.address);
  return refused;
}

// Random workloads at random limits: the limit is never exceeded, nothing aborts, and content survives. With
// FREESTONE_TEST_OPS=40 there are 10,000. Each prints its seed when it fails.
TEST_F(Limits, AreNeverExceededByRandomWorkloadsWhichNeverAbort) {
  const auto workloads = static_cast<unsigned>(scaled(250));
  uint64_t refused = 0;
  for (unsigned seed = 1; seed <= workloads && !HasFailure(); ++seed) {
    Random random(seed);
    malloc_trim(0);
    const uint64_t base = stats().charged_bytes;
    const uint64_t limit = base + kMiB + random.below(32 * kMiB);
    ASSERT_EQ(set_limits(random.below(2) == 0 ? base + random.below(limit - base) : 0, limit), 0);
    const unsigned largest = 10 + static_cast<unsigned>(random.below(14));
    if (random.below(3) == 0) {
      std::thread other([&] { refused += work(seed * 2 + 1, 1500, largest); });
      const unsigned own = work(seed * 2, 1500, largest);
      other.join();
      refused += own;
    } else {
      refused += work(seed * 2, 3000, largest);
    }
    const freestone_stats s = stats();
    EXPECT_LE(s.charged_bytes, limit) << "seed " << seed;
    set_limits(0, 0);
    const char* damage = nullptr;
    EXPECT_EQ(freestone_validate(&damage), 0) << damage << ", seed " << seed;
  }
  EXPECT_GT(refused, 0U) << "no workload met its limit: the test would pass without limits";
  printf("%u workloads, %llu refusals\n", workloads, static_cast<unsigned long long>(refused));
}

// peak_bytes sees every instant: it is the highest the account ever was.
TEST_F(Limits, HoldForThePeakToo) {
  malloc_trim(0);
  const uint64_t limit = stats().peak_bytes + 4 * kMiB;
  ASSERT_EQ(set_limits(0, limit), 0);
  EXPECT_GT(work(99, 20000, 28), 0U);
  EXPECT_LE(stats().peak_bytes, limit);
}

}  // namespace
}  // namespace freestone_test
