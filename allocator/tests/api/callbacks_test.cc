// The program is asked before an allocation fails and told when the heap was misused.

#include <csignal>

#include "api/support.h"

namespace freestone_test {
namespace {

class Callbacks : public NoLimitsLeft {
 public:
  Blocks reserve_;
  int calls_ = 0;
  size_t asked_ = 0;
  std::vector<unsigned> attempts_;

 protected:
  void TearDown() override {
    NoLimitsLeft::TearDown();
    freestone_set_callbacks(nullptr);
  }
  void ask(int (*answer)(Callbacks& self, unsigned attempt)) {
    answer_ = answer;
    const auto asked = [](void* context, size_t bytes, unsigned attempt) {
      auto& self = *static_cast<Callbacks*>(context);
      ++self.calls_;
      self.asked_ = bytes;
      return self.answer_(self, attempt);
    };
    const freestone_callbacks callbacks{FREESTONE_CALLBACKS_VERSION, 0, this, asked, nullptr};
    ASSERT_EQ(freestone_set_callbacks(&callbacks), 0);
  }

 private:
  int (*answer_)(Callbacks&, unsigned) = nullptr;
};

TEST_F(Callbacks, OutOfMemoryMayFreeSomethingAndIsTriedAgain) {
  reserve_.take(40, kMiB);
  ask([](Callbacks& self, unsigned) {
    if (self.reserve_.empty()) return 0;
    self.reserve_.free_last();
    return 1;
  });
  ASSERT_EQ(set_limits(0, stats().charged_bytes), 0);
  void* block = malloc(5 * kMiB);
  const int calls = calls_;
  const size_t asked = asked_;
  const uint64_t failed = stats().failed_allocations;
  void* never = malloc(100 * kMiB);
  const uint64_t failed_then = stats().failed_allocations;
  set_limits(0, 0);  // a failed expectation allocates
  EXPECT_NE(block, nullptr);
  EXPECT_GE(calls, is_hardened() ? 1 : 4);
  EXPECT_GE(asked, 5 * kMiB);
  EXPECT_LT(asked, 5 * kMiB + 64);
  EXPECT_EQ(never, nullptr) << "an empty reserve ends it";
  EXPECT_TRUE(reserve_.empty());
  EXPECT_EQ(failed_then, failed + 1);
  free(block);
}

TEST_F(Callbacks, AttemptsAreCountedFromZero) {
  attempts_.reserve(8);
  ask([](Callbacks& self, unsigned attempt) {
    self.attempts_.push_back(attempt);
    return self.attempts_.size() % 4 == 0 ? 0 : 1;
  });
  void* live = malloc(200 * kMiB);
  ASSERT_EQ(set_limits(0, stats().charged_bytes + kMiB), 0);
  const void* if_all_else_went_back = malloc(190 * kMiB);  // what is free goes back before the program is asked
  const void* beyond_the_limit = malloc(kMiB << 20);
  set_limits(0, 0);
  free(live);
  EXPECT_EQ(if_all_else_went_back, nullptr);
  EXPECT_EQ(beyond_the_limit, nullptr);
  EXPECT_EQ(attempts_, (std::vector<unsigned>{0, 1, 2, 3, 0, 1, 2, 3}));
}

// What the program frees in small blocks lies in caches and slabs at first.
TEST_F(Callbacks, SmallBlocksFreedWhenAskedMakeRoomForALargeOne) {
  reserve_.take(1 << 14, 1000);
  ask([](Callbacks& self, unsigned attempt) {
    self.reserve_.release();
    return attempt == 0 ? 1 : 0;
  });
  freestone_trim(0);
  ASSERT_EQ(set_limits(0, stats().charged_bytes + kMiB), 0);
  void* block = malloc(8 * kMiB);
  set_limits(0, 0);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(calls_, 1);
  free(block);
}

TEST_F(Callbacks, TakenBackAreNotCalledAndUnknownVersionsAreRefused) {
  ask([](Callbacks&, unsigned) { return 0; });
  EXPECT_EQ(freestone_set_callbacks(nullptr), 0);
  set_limits(0, 4096);
  EXPECT_EQ(malloc(kMiB), nullptr);
  EXPECT_EQ(calls_, 0);
  const freestone_callbacks wrong{FREESTONE_CALLBACKS_VERSION + 1, 0, nullptr, nullptr, nullptr};
  EXPECT_EQ(freestone_set_callbacks(&wrong), EINVAL);
}

TEST_F(Callbacks, AreToldOfCorruptionBeforeTheEnd) {
  const ChildEnd end = run_in_child([] {
    const auto told = [](void*, const char* kind, const void* block, const char* detail) {
      dprintf(2, "told: %s of %p: %s\n", kind, block, detail);
    };
    const freestone_callbacks callbacks{FREESTONE_CALLBACKS_VERSION, 0, nullptr, nullptr, told};
    freestone_set_callbacks(&callbacks);
    free(reinterpret_cast<void*>(16));
  });
  EXPECT_EQ(end.signal, SIGABRT);
  EXPECT_EQ(end.errors.rfind("freestone: invalid free of 0x10", 0), 0U) << end.describe();
  EXPECT_NE(end.errors.find("\ntold: invalid free of 0x10: the address is not from this allocator"), std::string::npos)
      << end.describe();
}

}  // namespace
}  // namespace freestone_test
