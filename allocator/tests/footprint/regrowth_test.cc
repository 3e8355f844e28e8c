// A heap that shrinks and grows again pays for its pages once or twice, not each time; and what it keeps for that is
// never more than it had at its peak. Each case is a fresh child; the page faults of each cycle are counted.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "support/blocks.h"
#include "support/child.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

size_t small_size(Random& random) { return static_cast<size_t>(random.log_uniform(16, 8 * kKiB)); }

class Regrowth : public testing::Test {
 protected:
  void SetUp() override {
    if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  }

  // Runs `cycle` (which grows and shrinks by `pages`) often. After the first few, a cycle faults at most one page in
  // `one_in`; the best quarter of them (a machine that stops the program for long makes it look idle). The memory never
  // exceeds what the first cycle needed, or `most_live` where that depends on the scheduler, by more than a sixteenth
  // and the free memory that is always kept.
  static void expect_cheap_cycles(size_t pages, const std::function<void()>& cycle, size_t most_live = 0,
                                  size_t one_in = 50) {
    EXPECT_TRUE(ends_well([&] {
      constexpr int kFirst = 3;
      constexpr int kMore = 20;
      const size_t before = resident_bytes();
      cycle();
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      const size_t first_peak = std::max(static_cast<size_t>(usage.ru_maxrss) * kKiB - before, most_live);
      for (int k = 1; k < kFirst; ++k) cycle();
      std::vector<size_t> faults(kMore);
      for (size_t& of_cycle : faults) {
        const long start = minor_faults();
        cycle();
        of_cycle = static_cast<size_t>(minor_faults() - start);
      }
      std::nth_element(faults.begin(), faults.begin() + kMore / 4, faults.end());
      const size_t per_cycle = faults[kMore / 4];
      getrusage(RUSAGE_SELF, &usage);
      const size_t peak = static_cast<size_t>(usage.ru_maxrss) * kKiB - before;
      dprintf(STDERR_FILENO, "%zu faults a cycle of %zu pages; peak %zu KiB, of the first cycle %zu KiB\n", per_cycle,
              pages, peak / kKiB, first_peak / kKiB);
      if (per_cycle > pages / one_in) return 2;
      return peak <= first_peak + first_peak / 16 + 10 * kMiB ? 0 : 3;
    }));
  }
};

TEST_F(Regrowth, TwoThousandBlocksOf9000BytesAgainAndAgain) {
  Blocks blocks(2000);
  expect_cheap_cycles(2000 * 9000 / kPage, [&] {
    blocks.add(9000, 2000);
    blocks.shrink_to(0);
  });
}

TEST_F(Regrowth, SmallBlocksOf64MiBOnTopOfAHeapThatStays) {
  for (const size_t stays : {2 * kMiB, 32 * kMiB}) {  // beside the first, each fall of use is a great one
    Blocks blocks(1 << 20);
    Random random(3);
    const auto draw = [&] { return small_size(random); };
    size_t base = 0;
    expect_cheap_cycles(64 * kMiB / kPage, [&] {
      if (base == 0) blocks.add_bytes(stays, draw);
      if (base == 0) base = blocks.count();
      blocks.add_bytes(64 * kMiB, draw);
      blocks.shrink_to(base);
    });
  }
}

// A container's quota lets a process run for 10 of each 100 ms. To it the time between is no time without use.
TEST_F(Regrowth, AProcessThatGetsATenthOfACpu) {
  EXPECT_TRUE(ends_well([] {
    constexpr size_t kSwing = 64 * kMiB, kAtOnce = 100;
    const size_t most = (subject().is_hardened ? 8 : 5) * kSwing / kPage;
    Blocks blocks(1 << 20);
    Random random(4);
    clock_t start = clock();
    const auto wait_for_cpu = [&] {
      if (clock() - start < CLOCKS_PER_SEC / 100) return;
      usleep(90'000);
      start = clock();
    };
    for (int k = 0; k < 12; ++k) {
      blocks.add_bytes(kSwing, [&] {
        wait_for_cpu();
        return small_size(random);
      });
      for (; blocks.count() > 0; wait_for_cpu()) blocks.shrink_to(blocks.count() - std::min(blocks.count(), kAtOnce));
    }
    dprintf(STDERR_FILENO, "%ld faults of %zu pages\n", minor_faults(), 12 * kSwing / kPage);
    return static_cast<size_t>(minor_faults()) < most ? 0 : 1;
  }));
}

// Freed in random order, with survivors in most slabs: what comes and goes is free pages inside slabs, of many classes.
TEST_F(Regrowth, BlocksThatLeaveSurvivorsInTheirSlabs) {
  constexpr size_t kSwing = 32 * kMiB;
  Blocks blocks(1 << 16);
  Random random(8);
  size_t survivors = 0;
  expect_cheap_cycles(kSwing / kPage, [&] {
    blocks.add_bytes(kSwing, [&] { return random.between(kKiB, 32 * kKiB); });
    blocks.shuffle(survivors, random);
    if (survivors == 0) survivors = blocks.count() / 16;
    blocks.shrink_to(survivors);
  });
}

TEST_F(Regrowth, BlocksUpTo60KBReplacedAtRandom) {
  Blocks blocks(1000);
  Random random(77);
  while (blocks.count() < 1000) blocks.add(1 + random.below(60000));
  expect_cheap_cycles(20000 * 30000 / kPage, [&] {
    for (int i = 0; i < 20000; ++i) blocks.replace(random.below(1000), 1 + random.below(60000));
  });
}

TEST_F(Regrowth, EightThreadsGrowAndShrink) {
  constexpr size_t kThreads = 8;
  constexpr size_t kTable = 1 << 15;
  constexpr size_t kMost = 14 * kMiB;
  expect_cheap_cycles(
      kThreads * (10 * 8 * kMiB / kPage + kTable * sizeof(void*) / kPage),
      [&] {
        std::vector<std::thread> team;
        for (size_t t = 0; t < kThreads; ++t)
          team.emplace_back([t] {
            Random random(t + 1);
            Blocks blocks(kTable);
            for (int k = 0; k < 10; ++k) {
              const size_t most = random.between(2 * kMiB, kMost);
              blocks.add_bytes(most, [&] { return small_size(random); });
              blocks.shrink_to(blocks.count() / 8);
            }
            blocks.shrink_to(0);
          });
        for (std::thread& thread : team) thread.join();
      },
      kThreads * kMost);
}

// A system that gives huge pages to who asks gives one to a mapping of its own.
bool system_gives_huge_pages() {
  constexpr size_t kHuge = 2 * kMiB;
  auto* mapping =
      static_cast<char*>(mmap(nullptr, 2 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  madvise(mapping, 2 * kHuge, MADV_HUGEPAGE);
  for (size_t at = 0; at < 2 * kHuge; at += kPage) mapping[at] = 1;
  const bool gives = resident_bytes("AnonHugePages:") >= kHuge;
  munmap(mapping, 2 * kHuge);
  return gives;
}

TEST_F(Regrowth, ALargeHeapOfSmallBlocksGrowsByHugePages) {
  if (subject().is_hardened) GTEST_SKIP() << "its spans have guards";
  EXPECT_TRUE(ends_well([] {
    constexpr size_t kMost = 100 * kMiB;
    constexpr size_t kBlock = 200;
    if (!system_gives_huge_pages()) return 0;
    Blocks blocks(kMost / kBlock);
    blocks.add(kBlock, kMost / kBlock);
    dprintf(STDERR_FILENO, "%zu KiB in huge pages\n", resident_bytes("AnonHugePages:") / kKiB);
    return resident_bytes("AnonHugePages:") > 0 ? 0 : 1;
  }));
}

// What a growing block leaves behind does not fit the next step: at the peak the heap has more free memory than before.
TEST_F(Regrowth, VectorsThatGrowSideBySideByALittle) {
  constexpr size_t kVectors = 4;
  constexpr size_t kMost = kMiB;
  constexpr int kTimes = 8;
  expect_cheap_cycles(
      kTimes * kVectors * kMost / kPage,
      [&] {
        Random random(21);
        for (int k = 0; k < kTimes; ++k) {
          char* vectors[kVectors] = {};
          size_t sizes[kVectors] = {};
          for (size_t growing = kVectors; growing > 0;) {
            growing = 0;
            for (size_t v = 0; v < kVectors; ++v) {
              if (sizes[v] >= kMost) continue;
              const size_t size = sizes[v] == 0 ? 64 * kKiB : sizes[v] + 64 + random.below(4096);
              vectors[v] = static_cast<char*>(api().realloc(vectors[v], size));
              for (size_t at = sizes[v]; at < size; ++at) vectors[v][at] = 1;
              sizes[v] = size;
              ++growing;
            }
          }
          for (char* vector : vectors) api().free(vector);
        }
      },
      0, 20);
}

// A run or a mapping that is freed and taken again at once.
TEST_F(Regrowth, OneLargeBlockAgainAndAgain) {
  for (const size_t size : {256 * kKiB, 1 * kMiB, 3 * kMiB, 8 * kMiB, 20 * kMiB})
    expect_cheap_cycles(16 * size / kPage, [&] {
      for (int k = 0; k < 16; ++k) api().free(touched(size));
    });
}

// Blocks whose holes do not fit each other: what went back and is taken again soon is kept, so most pages that are
// touched do not fault, and the peak stays near what is live. Each page carries its block's number.
TEST_F(Regrowth, LargeBlocksThatDoNotFitIntoEachOthersPlaces) {
  if (subject().is_hardened) GTEST_SKIP() << "it gives large blocks back when they are freed";
  EXPECT_TRUE(ends_well([] {
    constexpr size_t kPlaces = 10;
    constexpr size_t kSizeMin = 4 * kMiB;
    constexpr size_t kSizeMost = 12 * kMiB;
    Random random(11);
    size_t* blocks[kPlaces] = {};
    size_t sizes[kPlaces] = {};
    size_t live = 0;
    size_t most_live = 0;
    size_t touched_pages = 0;
    size_t peak = 0;
    const size_t before = resident_bytes();
    const long faults = minor_faults();
    for (size_t number = 0; number < 200; ++number) {
      const size_t place = number < kPlaces ? number : random.below(kPlaces);
      const size_t size = random.between(kSizeMin, kSizeMost);
      const bool zeroed = random.below(8) == 0;
      auto* block = static_cast<size_t*>(zeroed ? api().calloc(1, size) : api().malloc(size));
      for (size_t at = 0; at < size; at += kPage) {
        if (zeroed && block[at / sizeof(size_t)] != 0) return 2;
        block[at / sizeof(size_t)] = number;
      }
      std::swap(block, blocks[place]);
      live += size;
      most_live = std::max(most_live, live);
      touched_pages += size / kPage;
      peak = std::max(peak, resident_bytes() - before);
      for (size_t at = 0; at < sizes[place]; at += kPage)
        if (block[at / sizeof(size_t)] != block[0]) return 3;
      api().free(block);
      live -= std::exchange(sizes[place], size);
    }
    const auto faulted = static_cast<size_t>(minor_faults() - faults);
    dprintf(STDERR_FILENO, "%zu faults for %zu pages touched, %zu live at most; peak %zu KiB\n", faulted, touched_pages,
            most_live / kPage, peak / kKiB);
    if (faulted > 4 * most_live / kPage) return 4;
    constexpr size_t kKeptFree = 8 * kMiB;  // and a quarter of what is live; a sixteenth is for the rest
    return peak <= most_live + most_live / 4 + most_live / 16 + kKeptFree ? 0 : 5;
  }));
}

TEST_F(Regrowth, BatchesThatOneThreadTakesAndAnotherFrees) {
  expect_cheap_cycles(100 * 2000 * 64 / kPage, [&] {
    std::vector<std::vector<void*>> batches(100);
    std::thread([&] {
      for (auto& batch : batches)
        for (int i = 0; i < 2000; ++i) batch.push_back(touched(64));
    }).join();
    std::thread([&] {
      for (auto& batch : batches)
        for (void* block : batch) api().free(block);
    }).join();
  });
}

// After the swings have ended the memory goes with the next few calls, as time passes: also where these take nothing
// but small blocks.
void expect_end_of_swings(size_t size_after) {
  EXPECT_TRUE(ends_well([size_after] {
    Random random(5);
    const size_t before = resident_bytes();
    Blocks blocks(1 << 20);
    for (int k = 0; k < 6; ++k) {
      blocks.add(9000, 64 * kMiB / 9000);
      blocks.shrink_to(0);
    }
    const size_t kept = resident_bytes() - before;
    size_t now = kept;
    for (int waits = 0; waits < 600 && now > 24 * kMiB; ++waits) {
      usleep(50'000);
      for (int i = 0; i < 200; ++i) blocks.add(1 + random.below(size_after));
      blocks.shrink_to(0);
      now = resident_bytes() - before;
    }
    dprintf(STDERR_FILENO, "kept %zu KiB, in the end %zu KiB\n", kept / kKiB, now / kKiB);
    return now <= 24 * kMiB ? 0 : 1;
  }));
}
TEST_F(Regrowth, WhatWasKeptForSwingsGoesWhenTheyEnd) { expect_end_of_swings(18000); }
TEST_F(Regrowth, WhatWasKeptForSwingsGoesWhenOnlySmallBlocksAreTaken) { expect_end_of_swings(1000); }

}  // namespace
}  // namespace freestone_test
