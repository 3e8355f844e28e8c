// Room 4, platform: a lock of four bytes that needs no initialisation, never allocates and may be held across fork.
//
// Three states (Drepper, "Futexes are tricky"): free, held, held with sleepers. It spins for a bounded number of pauses
// and then sleeps in the kernel, so that a holder who lost its CPU is not waited for by burning another.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "platform/os.h"

namespace freestone {

class FREESTONE_CAPABILITY Mutex {
 public:
  void lock() FREESTONE_ACQUIRES() {
    u32 expected = kFree;
    if (FREESTONE_UNLIKELY(!state_.replace_acquire(expected, kHeld))) lock_slow();
  }
  bool try_lock() FREESTONE_TRY_ACQUIRES(true) {
    u32 expected = kFree;
    return state_.replace_acquire(expected, kHeld);
  }
  void unlock() FREESTONE_RELEASES() {
    if (FREESTONE_UNLIKELY(state_.exchange_release(kFree) == kContended)) os::futex_wake_one(&state_);
  }
  // The child of a fork has one thread; whoever held the lock is not in it.
  void reset_in_child() { state_.store_relaxed(kFree); }

 private:
  static constexpr u32 kFree = 0;
  static constexpr u32 kHeld = 1;
  static constexpr u32 kContended = 2;
  static constexpr int kSpins = 64;

  FREESTONE_SLOW void lock_slow() {
    for (int i = 0; i < kSpins; ++i) {
      cpu_relax();
      u32 expected = kFree;
      if (state_.load_relaxed() == kFree && state_.replace_acquire(expected, kHeld)) return;
    }
    while (state_.exchange_acquire(kContended) != kFree) os::futex_wait(&state_, kContended);
  }

  Atomic<u32> state_;
};

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
