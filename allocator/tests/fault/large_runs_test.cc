// Freed blocks of 4 to 32 MiB in the hardened build: they fault at once, always, and their addresses come back late.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/child.h"
#include "support/hardened_test.h"
#include "support/mapping_count.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kSizes[] = {4 * kMebibyte + 100000, 5'000'000, 8 * kMebibyte, 20'000'000, 32 * kMebibyte - 100};

class LargeRuns : public HardenedTest {};

char* take(size_t bytes) {
  auto* const block = static_cast<char*>(api().malloc(bytes));
  for (size_t at = 0; block != nullptr && at < bytes; at += bytes / 8) block[at] = 1;
  return block;
}

// More than any allowance pays for.
void spend_allowance(size_t bytes) {
  for (int k = 0; k < 200; ++k) api().free(take(bytes));
}

TEST_F(LargeRuns, FaultAtOnceHoweverManyWereFreed) {
  for (const size_t bytes : kSizes) {
    for (const bool alone : {true, false}) {  // as the only one, or while others of its length are in use
      for (const size_t offset : {size_t{0}, size_t{300}, bytes / 2, bytes - 1}) {
        const auto write_after_free = [&] {
          if (!alone) take(bytes);
          spend_allowance(bytes);
          char* const block = take(bytes);
          api().free(block);
          static_cast<volatile char*>(block)[offset] = 1;
        };
        EXPECT_TRUE(dies_by(SIGSEGV, write_after_free)) << bytes << " bytes, offset " << offset;
      }
    }
  }
}

TEST_F(LargeRuns, AddressesComeBackAfterMany) {
  for (const size_t bytes : kSizes) {
    const char* const freed = take(bytes);
    api().free(const_cast<char*>(freed));
    unsigned pairs = 0;
    for (bool meets = false; !meets && pairs < 5000; ++pairs) {
      const char* const block = take(bytes);
      ASSERT_NE(block, nullptr);
      meets = block < freed + bytes && freed < block + bytes;
      api().free(const_cast<char*>(block));
    }
    std::printf("%zu bytes: after %u pairs\n", bytes, pairs);
    EXPECT_GE(pairs, (size_t{450} << 20) / (bytes + 64 * 1024)) << bytes;
  }
}

// What waits is neither charged nor in the way.
TEST_F(LargeRuns, WaitingFailsNoAllocation) {
  EXPECT_TRUE(ends_well([] {
    using SetOption = int (*)(const char*, const char*);
    const auto set_option = reinterpret_cast<SetOption>(dlsym(RTLD_DEFAULT, "freestone_option_set"));
    for (const size_t bytes : kSizes) {
      for (int k = 0; k < 100; ++k) api().free(take(bytes));
    }
    if (set_option("limit_hard", "192m") != 0) return 1;
    for (int round = 0; round < 300; ++round) {
      for (const size_t bytes : kSizes) {
        char* const block = take(bytes);
        if (block == nullptr) return 2;
        api().free(block);
      }
    }
    return 0;
  }));
}

TEST_F(LargeRuns, AreZeroWhenTakenAgain) {
  for (int round = 0; round < 600; ++round) {
    const size_t bytes = kSizes[round % 3];
    auto* const block = static_cast<char*>(api().malloc(bytes));
    ASSERT_NE(block, nullptr);
    for (size_t at = 0; at < bytes; at += bytes / 16) ASSERT_EQ(block[at], 0);
    std::memset(block + bytes / 4, 1, bytes / 64);
    api().free(block);
  }
}

TEST_F(LargeRuns, TakeFewMappings) {
  const size_t before = mapping_count();
  for (int round = 0; round < 200; ++round) api().free(take(kSizes[round % 5]));
  EXPECT_LT(mapping_count(), before + 200);
}

}  // namespace
}  // namespace freestone_test
