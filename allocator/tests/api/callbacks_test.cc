// The program is asked before an allocation fails and told when the heap was misused.
#include <unistd.h>

#include "api/support.h"

namespace freestone_test {
namespace {

class Callbacks : public NoLimitsLeft {
 protected:
  void TearDown() override {
    NoLimitsLeft::TearDown();
    freestone_set_callbacks(nullptr);
  }
  static int set(void* context, int (*out_of_memory)(void*, size_t, unsigned),
                 void (*corruption)(void*, const char*, const void*, const char*)) {
    const freestone_callbacks callbacks{FREESTONE_CALLBACKS_VERSION, 0, context, out_of_memory, corruption};
    return freestone_set_callbacks(&callbacks);
  }
};

struct Reserve {
  std::vector<void*> blocks;
  int calls = 0;
  size_t asked = 0;
};

TEST_F(Callbacks, OutOfMemoryMayFreeSomethingAndIsTriedAgain) {
  Reserve reserve;
  for (int i = 0; i < 40; ++i) reserve.blocks.push_back(malloc(kMiB));
  ASSERT_EQ(set(&reserve, [](void* context, size_t bytes, unsigned) {
    auto* r = static_cast<Reserve*>(context);
    ++r->calls;
    r->asked = bytes;
    if (r->blocks.empty()) return 0;
    free(r->blocks.back());
    r->blocks.pop_back();
    return 1;
  }, nullptr), 0);
  ASSERT_EQ(set_limits(0, stats().charged_bytes), 0);
  void* block = malloc(5 * kMiB);
  const Reserve first = {{}, reserve.calls, reserve.asked};
  const uint64_t failed = stats().failed_allocations;
  void* never = malloc(100 * kMiB);
  const uint64_t failed_then = stats().failed_allocations;
  set_limits(0, 0);  // a failed expectation allocates
  EXPECT_NE(block, nullptr);
  EXPECT_GE(first.calls, is_hardened() ? 1 : 4);
  EXPECT_GE(first.asked, 5 * kMiB);
  EXPECT_LT(first.asked, 5 * kMiB + 64);
  EXPECT_EQ(never, nullptr) << "an empty reserve ends it";
  EXPECT_TRUE(reserve.blocks.empty());
  EXPECT_EQ(failed_then, failed + 1);
  free(block);
}

TEST_F(Callbacks, AttemptsAreCountedFromZero) {
  std::vector<unsigned> attempts;
  attempts.reserve(8);
  ASSERT_EQ(set(&attempts, [](void* context, size_t, unsigned attempt) {
    auto* seen = static_cast<std::vector<unsigned>*>(context);
    seen->push_back(attempt);
    return seen->size() % 4 == 0 ? 0 : 1;
  }, nullptr), 0);
  void* live = malloc(200 * kMiB);
  ASSERT_EQ(set_limits(0, stats().charged_bytes + kMiB), 0);
  const void* if_all_else_went_back = malloc(190 * kMiB);  // what is free goes back before the program is asked
  const void* beyond_the_limit = malloc(kMiB << 20);
  set_limits(0, 0);
  free(live);
  EXPECT_EQ(if_all_else_went_back, nullptr);
  EXPECT_EQ(beyond_the_limit, nullptr);
  EXPECT_EQ(attempts, (std::vector<unsigned>{0, 1, 2, 3, 0, 1, 2, 3}));
}

// What the program frees in small blocks lies in caches and slabs at first.
TEST_F(Callbacks, SmallBlocksFreedWhenAskedMakeRoomForALargeOne) {
  Reserve reserve;
  reserve.blocks.reserve(1 << 14);
  for (int i = 0; i < 1 << 14; ++i) reserve.blocks.push_back(malloc(1000));
  ASSERT_EQ(set(&reserve, [](void* context, size_t, unsigned attempt) {
    auto* r = static_cast<Reserve*>(context);
    ++r->calls;
    for (void* block : r->blocks) free(block);
    r->blocks.clear();
    return attempt == 0 ? 1 : 0;
  }, nullptr), 0);
  freestone_trim(0);
  ASSERT_EQ(set_limits(0, stats().charged_bytes + kMiB), 0);
  void* block = malloc(8 * kMiB);
  set_limits(0, 0);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(reserve.calls, 1);
  free(block);
}

TEST_F(Callbacks, TakenBackAreNotCalled) {
  Reserve reserve;
  ASSERT_EQ(set(
                &reserve, [](void* context, size_t, unsigned) { return ++static_cast<Reserve*>(context)->calls, 0; },
                nullptr),
            0);
  EXPECT_EQ(freestone_set_callbacks(nullptr), 0);
  set_limits(0, 4096);
  EXPECT_EQ(malloc(kMiB), nullptr);
  EXPECT_EQ(reserve.calls, 0);
}

TEST_F(Callbacks, UnknownVersionsAreRefused) {
  const freestone_callbacks wrong{FREESTONE_CALLBACKS_VERSION + 1, 0, nullptr, nullptr, nullptr};
  EXPECT_EQ(freestone_set_callbacks(&wrong), EINVAL);
}

using CallbacksDeathTest = Callbacks;

TEST_F(CallbacksDeathTest, CorruptionIsToldBeforeTheEnd) {
  EXPECT_DEATH(
      {
        set(nullptr, nullptr, [](void*, const char* kind, const void* block, const char* detail) {
          dprintf(2, "told: %s of %p: %s\n", kind, block, detail);
        });
        free(reinterpret_cast<void*>(16));
      },
      "freestone: invalid free of 0x10[^\n]*\n(.*\n)*told: invalid free of 0x10: the address is not from this "
      "allocator");
}

}  // namespace
}  // namespace freestone_test
