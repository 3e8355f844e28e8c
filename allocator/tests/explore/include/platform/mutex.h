// Room 4, platform: the lock of src/platform/mutex.h, which it stands in for: a thread that cannot have it lets others
// run.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "platform/child.h"
#include "platform/lock_counts.h"
#include "platform/os.h"

namespace freestone {

class FREESTONE_CAPABILITY Mutex {
 public:
  constexpr explicit Mutex(LockName) {}
  void lock() FREESTONE_ACQUIRES() {
    u32 free = 0;
    while (!state_.replace_acquire(free, 1)) {
      free = 0;
      cpu_relax();
    }
  }
  bool try_lock() FREESTONE_TRY_ACQUIRES(true) {
    u32 free = 0;
    return state_.replace_acquire(free, 1);
  }
  void unlock() FREESTONE_RELEASES() { state_.store_release(0); }
  bool is_mine() const { return state_.load_relaxed() != 0; }
  void hold_for_fork() {}
  void release_after_fork() {}
  bool reset_in_child() { return false; }
  bool seize_in_child(Cut = Cut::fork) { return false; }

 private:
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
