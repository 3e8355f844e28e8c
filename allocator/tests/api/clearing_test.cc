// What the hardened build does to freed blocks above 256 bytes, and what the option hardening_rate bounds of it.
#include <freestone/freestone.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kBytes = 2000;
constexpr size_t kSlabRun = 100 * 1024;  // a block with a span of its own, which is sealed rather than cleared

class Clearing : public testing::Test {
 protected:
  void SetUp() override {
    if (!API_HARDENED) GTEST_SKIP() << "a mitigation";
  }
};

// Of 100 blocks, how many had lost the middle of their contents when they were freed. The pages stay readable: they are
// a slab's.
int cleared_of_100() {
  int cleared = 0;
  for (int i = 0; i < 100; ++i) {
    auto* block = static_cast<char*>(malloc(kBytes));
    memset(block, 'A', kBytes);
    free(block);
    cleared += static_cast<const volatile char*>(block)[kBytes / 2] == 0;
  }
  return cleared;
}

// Whether the kernel still has the first page of a block that was freed a moment ago.
bool is_resident_after_free(size_t bytes) {
  auto* block = static_cast<char*>(malloc(bytes));
  memset(block, 'A', bytes);
  free(block);
  unsigned char present = 0;
  return mincore(reinterpret_cast<void*>(reinterpret_cast<size_t>(block) & ~size_t{4095}), 4096, &present) == 0 &&
         (present & 1) != 0;
}

// On seals, of which one counts for half a MiB and more.
void spend_the_stock() {
  for (int i = 0; i < 2000; ++i) free(malloc(kSlabRun));
}

TEST_F(Clearing, OfSlabBlocksIsCompleteWhateverTheRate) {
  ASSERT_EQ(freestone_option_set("hardening_rate", "1"), 0) << "a byte per millisecond: nothing is earned here";
  EXPECT_EQ(cleared_of_100(), 100);
  spend_the_stock();
  EXPECT_EQ(cleared_of_100(), 100);
}

TEST_F(Clearing, RunsAreSealedWhileTheStockLastsAndThenCleared) {
  ASSERT_EQ(freestone_option_set("hardening_rate", "0"), 0);
  if (is_resident_after_free(kSlabRun)) GTEST_SKIP() << "this kernel has no guards";
  ASSERT_EQ(freestone_option_set("hardening_rate", "1"), 0);
  spend_the_stock();
  EXPECT_TRUE(is_resident_after_free(kSlabRun));
  auto* block = static_cast<char*>(malloc(kSlabRun));
  memset(block, 'A', kSlabRun);
  free(block);
  size_t left = 0;
  for (size_t i = 0; i < kSlabRun; ++i) left += static_cast<const volatile char*>(block)[i] != 0;
  EXPECT_EQ(left, 0U);
}

}  // namespace
