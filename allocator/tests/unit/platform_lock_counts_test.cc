// Room 4: a build that counts locks counts each by its name.
#include "platform/lock_counts.h"

#include <string>

#include "platform/mutex.h"
#include "report/statistics.h"

#include "unit/support.h"

namespace freestone {
namespace {

constinit Mutex subject{LockName::snapshot};  // a name that nothing else uses here

struct Counts {
  u64 taken, waited, held_ns;
};
Counts counts() {
  const LockCount& lock = count_of(LockName::snapshot);
  return {lock.taken.load_relaxed(), lock.waited.load_relaxed(), lock.held_ns.load_relaxed()};
}

class platform_lock_counts : public ::testing::Test {
  void SetUp() override {
    if constexpr (!kCountsLocks) GTEST_SKIP() << "this build counts no locks";
  }
};

TEST_F(platform_lock_counts, EachTimeThatALockIsTakenCounts) {
  const Counts before = counts();
  for (int i = 0; i < 10; ++i) LockGuard guard(subject);
  ASSERT_TRUE(subject.try_lock());
  EXPECT_EQ(counts().taken - before.taken, 11u);
  EXPECT_EQ(counts().waited, before.waited);
  std::thread([] { EXPECT_FALSE(subject.try_lock()); }).join();
  EXPECT_EQ(counts().taken - before.taken, 11u) << "it was not taken";
  subject.unlock();
}

TEST_F(platform_lock_counts, TheTimeThatItIsHeldCountsWhenItEnds) {
  constexpr unsigned kMicroseconds = 2000;
  const Counts before = counts();
  subject.lock();
  os::sleep_microseconds(kMicroseconds);
  EXPECT_EQ(counts().held_ns, before.held_ns);
  subject.unlock();
  EXPECT_GE(counts().held_ns - before.held_ns, kMicroseconds * 1000);
}

TEST_F(platform_lock_counts, WhoFindsItHeldWaits) {
  const Counts before = counts();
  // The other thread may come when the lock is free already: then again.
  for (int i = 0; i < 1000 && counts().waited == before.waited; ++i) {
    Atomic<u32> asks;
    subject.lock();
    std::thread other([&] {
      asks.store_release(1);
      LockGuard guard(subject);
    });
    while (asks.load_acquire() == 0) cpu_relax();
    os::sleep_microseconds(1000);
    subject.unlock();
    other.join();
  }
  EXPECT_EQ(counts().waited - before.waited, 1u);
}

TEST_F(platform_lock_counts, TheStatisticsNameWhatWasTaken) {
  {
    LockGuard guard(subject);
  }
  for (const Format format : {Format::text, Format::json}) {
    std::string text;
    const auto append = [](void* to, const char* piece, usize length) {
      static_cast<std::string*>(to)->append(piece, length);
    };
    print_statistics(format, append, &text);
    EXPECT_NE(text.find(format == Format::json ? "\"locks\":{" : "locks: taken"), std::string::npos) << text;
    EXPECT_NE(text.find("snapshot"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace freestone
