// replayer/order.h: keeps one copy of a replay in the recorded order (PLAN-1, PLAN-2), without a common lock.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace freestone::trace {

inline constexpr unsigned kSpins = 100;  // then a thread lets others run

// Counts the finished windows, in their order.
class Windows {
 public:
  // `remaining` has one counter for each of `count` windows: how many threads have operations in it.
  void set(std::atomic<uint32_t>* remaining, uint32_t count) {
    remaining_ = remaining;
    count_ = count;
  }

  // The calling thread has finished its part of `window`. Calls `passed` for each window that this completes.
  template <class Passed>
  void finish(uint32_t window, Passed passed) {
    if (remaining_[window].fetch_sub(1) != 1) return;
    advance(passed);
  }

  template <class Passed>
  void advance(Passed passed) {
    bool moved = false;
    for (uint32_t done = done_.load(); done < count_ && remaining_[done].load() == 0;) {
      if (!done_.compare_exchange_weak(done, done + 1)) continue;
      passed(done++);
      moved = true;
    }
    if (moved && waiting_.load()) syscall(SYS_futex, &done_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }

  // Returns once `wanted` windows are done.
  void wait(uint32_t wanted) {
    for (unsigned i = 0; i < kSpins; i++)
      if (done_.load() >= wanted) return;
    waiting_.fetch_add(1);
    for (uint32_t done = done_.load(); done < wanted; done = done_.load())
      syscall(SYS_futex, &done_, FUTEX_WAIT_PRIVATE, done, nullptr, nullptr, 0);
    waiting_.fetch_sub(1);
  }

  uint32_t count() const { return count_; }

 private:
  std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> waiting_{0};
  std::atomic<uint32_t>* remaining_ = nullptr;
  uint32_t count_ = 0;
};

// The block in a slot, once its maker has put it there.
inline uintptr_t wait_for(const std::atomic<uintptr_t>& slot) {
  for (unsigned i = 0;; i++) {
    const uintptr_t block = slot.load(std::memory_order_acquire);  // sees what the maker wrote into the block
    if (block) return block;
    if (i >= kSpins) sched_yield();
  }
}

}  // namespace freestone::trace
