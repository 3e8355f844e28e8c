// Room 4, platform: a lock of eight bytes that needs no initialisation and never allocates.
//
//   63 ...................... 4        1          0
//   [ own_thread() of its owner | for a fork | sleepers ]      all zero: free
//
// A waiting thread spins for a bounded number of pauses and then sleeps in the kernel (Drepper, "Futexes are tricky"):
// it burns no CPU while the holder has lost its own.
//
// FORK-1  A thread can tell at every instruction which locks it holds, because the lock's word names the owner. When a
//         signal handler forks, the interrupted code goes on in the child and keeps its locks. The other threads do not
//         exist there, and their locks are reset before any is taken (FORK-4).
// FORK-2  The forking thread may take a lock that is held for the fork, because other libraries' fork handlers may
//         allocate.
#pragma once

#include "base/atomic.h"
#include "base/check.h"
#include "base/compiler.h"
#include "config/heuristics.h"
#include "platform/child.h"
#include "platform/lock_counts.h"
#include "platform/os.h"

namespace freestone {

class FREESTONE_CAPABILITY Mutex {
 public:
  constexpr explicit Mutex(LockName name) : meter_(name) {}

  void lock() FREESTONE_ACQUIRES() {
    settle_child();
    usize expected = kFree;
    const bool at_once = state_.replace_acquire(expected, own_thread());
    if (FREESTONE_UNLIKELY(!at_once)) lock_slow();
    meter_.taken(!at_once);
  }
  bool try_lock() FREESTONE_TRY_ACQUIRES(true) {
    settle_child();
    usize expected = kFree;
    if (!state_.replace_acquire(expected, own_thread()) && !is_held_for_own_fork()) return false;
    meter_.taken(false);
    return true;
  }
  void unlock() FREESTONE_RELEASES() {
    FREESTONE_CHECK("FORK-1", is_mine());
    if (FREESTONE_UNLIKELY((state_.load_relaxed() & kForFork) != 0)) return;  // FORK-2
    release();
  }
  // Whether the calling thread holds it.
  bool is_mine() const { return owner() == own_thread(); }

  // The forking thread calls these before and after a fork. A lock that the interrupted code holds stays as it is. The
  // wait for another is bounded: its holder may wait for one of the interrupted code. The child then repairs, as one in
  // which no fork handler ran.
  void hold_for_fork() FREESTONE_ASSERTS() FREESTONE_NO_ANALYSIS {
    if (is_mine()) return;
    settle_child();
    usize expected = kFree;
    const bool at_once = state_.replace_acquire(expected, own_thread());
    if (!at_once && !lock_slow(kForkLooks)) return;
    meter_.taken(!at_once);
    state_.or_seq(kForFork);
    FREESTONE_CHECK("FORK-2", is_held_for_own_fork());
  }
  void release_after_fork() {
    if (is_mine() && (state_.load_relaxed() & kForFork) != 0) release();
  }
  // Called by the repair of a child, while nobody takes locks. True if another thread was inside at the fork: the
  // caller then has the lock, repairs the data that it guards, and unlocks. If that is cut short by yet another fork,
  // the next child begins again.
  bool seize_in_child(Cut cut = Cut::fork) FREESTONE_TRY_ACQUIRES(true) {
    if (cut == Cut::cancellation) return is_mine();
    FREESTONE_CHECK("FORK-4", may_touch_shared());
    if (is_mine()) {
      release_after_fork();
      return false;
    }
    if (state_.load_relaxed() == kFree) return false;
    state_.store_relaxed(own_thread());
    meter_.taken(false);
    return true;
  }
  // The same where nothing needs repair.
  void reset_in_child() FREESTONE_EXCLUDES(this) {
    if (seize_in_child()) unlock();
  }

 private:
  static constexpr usize kFree = 0;
  static constexpr usize kSleepers = 1;
  static constexpr usize kForFork = 2;
  static constexpr usize kFlags = kSleepers | kForFork;
  // A signal handler may fork in the midst of the wait, and the kernel then goes on with the wait in the child, where
  // nobody releases the lock.
  static constexpr u64 kLookMs = 20;
  static constexpr int kForkLooks = 25;

  usize owner() const { return state_.load_relaxed() & ~kFlags; }
  bool is_held_for_own_fork() const { return (state_.load_relaxed() & kForFork) != 0 && is_mine(); }
  // The half of the word that the kernel compares.
  void* low_half() { return &state_; }
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

  void release() {
    meter_.leaving();
    if (FREESTONE_UNLIKELY((state_.exchange_release(kFree) & kSleepers) != 0)) os::futex_wake_one(low_half());
  }

  // False if it was not free at so many looks.
  FREESTONE_SLOW bool lock_slow(int looks = 0x7fffffff) {
    if (is_held_for_own_fork()) return true;
    for (int i = 0; i < kLockSpins; ++i) {
      cpu_relax();
      usize expected = kFree;
      if (state_.load_relaxed() == kFree && state_.replace_acquire(expected, own_thread())) return true;
    }
    for (;;) {
      settle_child();
      usize now = state_.load_relaxed();
      if (now == kFree) {
        // Others may sleep too, so the flag stays. At worst it wakes one thread too many.
        if (state_.replace_acquire(now, own_thread() | kSleepers)) return true;
      } else if ((now & kSleepers) == 0 && !state_.replace_acquire(now, now | kSleepers)) {
        continue;
      } else if (--looks < 0) {
        return false;
      } else {
        os::futex_wait_for(low_half(), static_cast<u32>(now | kSleepers), kLookMs);
      }
    }
  }

  Atomic<usize> state_;
  [[no_unique_address]] LockMeter<kCountsLocks> meter_;
};
static_assert(kCountsLocks || sizeof(Mutex) == sizeof(usize));

// Whether it is free, or becomes free within a bounded number of pauses: not if the interrupted code of this thread
// holds it, nor if a thread does that stands still.
inline bool becomes_free(Mutex& lock) FREESTONE_NO_ANALYSIS {
  for (int spins = 0; spins < 1000; ++spins) {
    if (lock.try_lock()) {
      lock.unlock();
      return true;
    }
    cpu_relax();
  }
  return false;
}

class FREESTONE_SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(Mutex& mutex) FREESTONE_ACQUIRES(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() FREESTONE_RELEASES() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace freestone
