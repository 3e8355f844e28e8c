// FORK-1 to FORK-3 from inside: each lock of the core is held by another thread at the fork, and what it guards is cut
// short.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cache/cache.h"
#include "cache/registry.h"
#include "front/heap.h"
#include "front/reclaim.h"
#include "platform/mutex.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/span_heap.h"
#include "span/span_map.h"
#include "unit/support.h"

namespace freestone {
namespace {

// Forks while another thread holds the lock and has done `change`; the lock is then free again and the change undone.
template <typename Work>
int fork_while_held(Mutex& lock, void (*change)(), void (*undo)(), Work work) {
  std::atomic<int> stage{0};
  std::thread other([&] {
    lock.lock();
    change();
    stage = 1;
    while (stage == 1) std::this_thread::yield();
    undo();
    lock.unlock();
  });
  while (stage == 0) std::this_thread::yield();
  const int status = fork_and(work);
  stage = 2;
  other.join();
  return status;
}

int use_everything() {
  for (usize bytes : {usize{10}, usize{3000}, usize{200'000}, usize{3'000'000}, usize{64} << 20}) {
    void* block = allocate(bytes);
    if (block == nullptr) return 1;
    block = reallocate(block, bytes * 2);
    if (block == nullptr) return 2;
    deallocate(block);
  }
  trim(0);
  return spans_are_valid() && caches_are_valid() ? 0 : 3;
}

void nothing() {}

TEST(front_fork, WhileAnotherThreadHoldsALockGivesAChildAWholeHeap) {
  for (Mutex* lock : {&cache_registry_lock, &mapping_lock, &growth_lock, &span_lock}) {
    EXPECT_EQ(fork_while_held(*lock, nothing, nothing, use_everything), 0);
  }
}

// Units that were taken from the words and not yet from what follows from them.
TEST(front_fork, AChangeOfTheBitmapsCutShortIsCountedAnew) {
  static UnitIndex first;
  static u64 word;
  Span span = take_span(64, 64);
  first = span.first;
  return_span(first, 64, true);
  const auto cut = [] {
    u64& free_units = super_at(first / kWordUnits / kSuperGroups).free_units[first / kWordUnits % kSuperGroups];
    word = free_units;
    free_units &= 0x5555;
  };
  const auto undo = [] {
    super_at(first / kWordUnits / kSuperGroups).free_units[first / kWordUnits % kSuperGroups] = word;
  };
  EXPECT_EQ(fork_while_held(span_lock, cut, undo, use_everything), 0);
  EXPECT_TRUE(spans_are_valid());
}

// A lock of the interrupted code stays held in the child, and goes on being passed by nobody else.
TEST(front_fork, OwnLocksStayHeldInTheChild) {
  span_lock.lock();
  EXPECT_EQ(fork_and([] {
    if (!span_lock.is_mine()) return 1;
    span_lock.unlock();
    return use_everything();
  }), 0);
  span_lock.unlock();
}

TEST(front_fork, AMutexHeldForAForkIsPassedByTheForkingThreadOnly) {
  Mutex lock{LockName::snapshot};
  lock.hold_for_fork();
  lock.lock();
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.is_mine());
  bool taken = true;
  std::thread([&] { taken = lock.try_lock(); }).join();
  EXPECT_FALSE(taken);
  lock.release_after_fork();
  std::thread([&] {
    taken = lock.try_lock();
    lock.unlock();
  }).join();
  EXPECT_TRUE(taken);
}

// A fork in a handler waits for what another thread holds, which waits for a lock of the interrupted code.
void fork_while_another_waits(bool other_forks) {
  Mutex outer{LockName::snapshot};
  Mutex inner{LockName::snapshot};
  inner.lock();
  std::atomic<bool> has_outer{false};
  std::thread other([&] {
    other_forks ? outer.hold_for_fork() : outer.lock();
    has_outer = true;
    inner.lock();
    inner.unlock();
    other_forks ? outer.release_after_fork() : outer.unlock();
  });
  while (!has_outer) std::this_thread::yield();
  outer.hold_for_fork();
  inner.hold_for_fork();
  EXPECT_FALSE(outer.is_mine());
  inner.release_after_fork();
  outer.release_after_fork();
  EXPECT_TRUE(inner.is_mine());
  inner.unlock();
  other.join();
  EXPECT_TRUE(outer.try_lock());
  outer.unlock();
}
TEST(front_fork, DoesNotWaitForEverForALockThatAnotherThreadKeeps) { fork_while_another_waits(false); }
TEST(front_fork, DoesNotWaitForEverForALockThatAnotherForkKeeps) { fork_while_another_waits(true); }

TEST(front_fork, ALockThatTheInterruptedCodeHoldsIsLeftToIt) {
  Mutex lock{LockName::snapshot};
  lock.lock();
  lock.hold_for_fork();
  lock.release_after_fork();
  EXPECT_TRUE(lock.is_mine());
  EXPECT_FALSE(lock.seize_in_child());
  EXPECT_TRUE(lock.is_mine());
  lock.unlock();
  EXPECT_FALSE(lock.is_mine());
}

}  // namespace
}  // namespace freestone
