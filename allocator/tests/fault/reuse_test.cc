// When and where the address of a freed block comes back, in the hardened build: late, and never inside a block of
// another size class.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "support/child.h"
#include "support/hardened_test.h"
#include "support/process_memory.h"
#include "support/subject.h"

extern "C" int malloc_trim(size_t bytes);

namespace freestone_test {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

class Reuse : public HardenedTest {};

char* take(size_t bytes) {
  auto* const block = static_cast<char*>(api().malloc(bytes));
  if (block != nullptr) *static_cast<volatile char*>(block) = 1;
  return block;
}

// Blocks of at least `bytes` in all, in random order.
std::vector<char*> take_all(size_t block_bytes, size_t bytes) {
  std::vector<char*> blocks(bytes / block_bytes);
  for (char*& block : blocks) block = take(block_bytes);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  return blocks;
}
void free_all(const std::vector<char*>& blocks) {
  for (char* block : blocks) api().free(block);
}

// Pairs of malloc and free until the address is handed out again.
unsigned pairs_until_return(size_t bytes) {
  char* const freed = take(bytes);
  api().free(freed);
  for (unsigned pairs = 1;; ++pairs) {
    char* const block = take(bytes);
    const bool meets = block <= freed && freed < block + bytes;
    api().free(block);
    if (meets || pairs == 1'000'000) return pairs;
  }
}

// At least half a queue, and a queue has places for 128 KiB at least.
TEST_F(Reuse, AFreedAddressComesBackAfterHalfAQueue) {
  for (const size_t bytes : {24, 100, 500, 1500, 4000, 12000}) {
    const std::vector<char*> in_use = take_all(bytes, kMebibyte);
    free_all(take_all(bytes, 2 * kMebibyte));
    std::vector<unsigned> pairs(30);
    for (unsigned& number : pairs) number = pairs_until_return(bytes);
    std::sort(pairs.begin(), pairs.end());
    std::printf("%zu bytes: after %u pairs, median %u\n", bytes, pairs.front(), pairs[pairs.size() / 2]);
    EXPECT_GE(pairs.front(), (size_t{64} << 10) / (bytes + bytes / 4 + 16)) << bytes;
    free_all(in_use);
  }
}

TEST_F(Reuse, AFreedAddressLiesInNoBlockOfAnotherSize) {
  const std::pair<size_t, size_t> sizes[] = {{24, 100},   {300, 1000},   {500, 1500},
                                             {4000, 300}, {30000, 2000}, {100, 30000}};
  for (const auto& [before, after] : sizes) {
    for (const bool trims : {false, true}) {
      std::vector<char*> freed = take_all(before, 8 * kMebibyte);
      free_all(freed);
      if (trims) malloc_trim(0);
      std::sort(freed.begin(), freed.end());
      const std::vector<char*> blocks = take_all(after, 24 * kMebibyte);
      size_t hits = 0;
      for (char* block : blocks) {
        const auto next = std::lower_bound(freed.begin(), freed.end(), block);
        hits += next != freed.end() && *next < block + after ? 1 : 0;
      }
      EXPECT_EQ(hits, 0u) << before << " bytes, then " << after << (trims ? ", trimmed" : "");
      free_all(blocks);
    }
  }
}

// Pages go back, addresses stay with their class and serve it again.
TEST_F(Reuse, ARetiredSlabGivesItsMemoryBackAndServesItsClassAgain) {
  constexpr size_t kBytes = 500, kAll = 48 * kMebibyte;
  EXPECT_TRUE(ends_well([] {
    std::vector<char*> first = take_all(kBytes, kAll);
    free_all(first);
    malloc_trim(0);
    if (resident_bytes() > kAll / 3) return 1;
    std::sort(first.begin(), first.end());
    for (int round = 0; round < 5; ++round) {
      const std::vector<char*> again = take_all(kBytes, kAll);
      size_t same = 0;
      for (char* block : again) same += std::binary_search(first.begin(), first.end(), block) ? 1 : 0;
      if (same < again.size() * 9 / 10) return 2;
      free_all(again);
      malloc_trim(0);
    }
    return 0;
  }));
}

TEST_F(Reuse, ARetiredSlabFaults) {
  const ChildEnd end = run_in_child([] {
    if (madvise(nullptr, 0, 102 /* MADV_GUARD_INSTALL */) != 0) return 77;
    const std::vector<char*> blocks = take_all(500, 8 * kMebibyte);
    free_all(blocks);
    malloc_trim(0);
    *static_cast<volatile char*>(blocks[blocks.size() / 2]) = 1;
    return 0;
  });
  if (end.exited_with(77)) GTEST_SKIP() << "guards have a budget here";
  EXPECT_EQ(end.signal, SIGSEGV) << end.describe();
}

// Where no addresses are left, what waits for its class serves others before an allocation fails.
TEST_F(Reuse, NoAllocationFailsForAddressesThatWait) {
  EXPECT_TRUE(ends_well([] {
    for (const size_t bytes : {100, 300, 1000, 3000, 10000}) {
      const std::vector<char*> blocks = take_all(bytes, 16 * kMebibyte);
      for (char* block : blocks) {
        if (block == nullptr) return 1;
      }
      free_all(blocks);
    }
    return 0;
  }));
}

}  // namespace
}  // namespace freestone_test
