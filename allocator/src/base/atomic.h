// Room 1, base: atomics with the memory order in the name. There is no default order.
//
// `or_` and `and_` without a result compile to one locked instruction on x86-64; the `fetch_` forms become a
// compare-exchange loop there unless the result is unused, so a caller that needs no old value says so.
#pragma once

#include <atomic>

#include "base/compiler.h"
#include "base/units.h"

namespace freestone {

template <typename T>
class Atomic {
 public:
  constexpr Atomic() = default;
  constexpr explicit Atomic(T value) : value_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load_relaxed() const { return value_.load(std::memory_order_relaxed); }
  // Relaxed, for a fast path that uses the value once. gcc gives each atomic load an instruction of its own, but makes
  // a plain load an operand of the compare. One load of an aligned word is never torn.
  [[gnu::always_inline]] T load_operand() const {
    if constexpr (FREESTONE_SANITIZED || sizeof(T) > sizeof(void*)) return load_relaxed();
    return *reinterpret_cast<const T*>(&value_);
  }
  T load_acquire() const { return value_.load(std::memory_order_acquire); }
  T load_seq() const { return value_.load(std::memory_order_seq_cst); }
  void store_relaxed(T value) { value_.store(value, std::memory_order_relaxed); }
  void store_release(T value) { value_.store(value, std::memory_order_release); }
  void store_seq(T value) { value_.store(value, std::memory_order_seq_cst); }
  T exchange_acquire(T value) { return value_.exchange(value, std::memory_order_acquire); }
  T exchange_release(T value) { return value_.exchange(value, std::memory_order_release); }
  T exchange_seq(T value) { return value_.exchange(value, std::memory_order_seq_cst); }

  bool replace_acquire(T& expected, T desired) {
    return value_.compare_exchange_strong(expected, desired, std::memory_order_acquire, std::memory_order_relaxed);
  }
  bool replace_seq(T& expected, T desired) {
    return value_.compare_exchange_strong(expected, desired, std::memory_order_seq_cst, std::memory_order_seq_cst);
  }

  void or_seq(T bits) { value_.fetch_or(bits, std::memory_order_seq_cst); }
  void and_seq(T bits) { value_.fetch_and(bits, std::memory_order_seq_cst); }
  T fetch_or_seq(T bits) { return value_.fetch_or(bits, std::memory_order_seq_cst); }
  T fetch_and_seq(T bits) { return value_.fetch_and(bits, std::memory_order_seq_cst); }
  T fetch_add_relaxed(T amount) { return value_.fetch_add(amount, std::memory_order_relaxed); }
  void add_relaxed(T amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  void sub_relaxed(T amount) { value_.fetch_sub(amount, std::memory_order_relaxed); }

  // A counter with a single writer: readers on other threads see whole values, the writer pays no locked instruction.
  void bump_single_writer(T amount) { store_relaxed(static_cast<T>(load_relaxed() + amount)); }

 private:
  std::atomic<T> value_{};
  static_assert(std::atomic<T>::is_always_lock_free && sizeof(std::atomic<T>) == sizeof(T));
};

// Advances a pointer that only this thread writes by one place. Other threads see the stores before it first. One
// instruction on x86-64, without a lock prefix.
template <typename T>
[[gnu::always_inline]] inline void advance_release(T*& pointer, T* known) {
#if defined(__x86_64__)
  if constexpr (!FREESTONE_SANITIZED) {
    asm volatile("addq %1, %0" : "+m"(pointer) : "i"(sizeof(T)) : "memory", "cc");
    return;
  }
#endif
  __atomic_store_n(&pointer, known + 1, __ATOMIC_RELEASE);
}

// Moves such a pointer back by one place, without order. One instruction on x86-64.
template <typename T>
[[gnu::always_inline]] inline void retreat(T*& pointer, T* known) {
#if defined(__x86_64__)
  if constexpr (!FREESTONE_SANITIZED) {
    asm("subq %1, %0" : "+m"(pointer) : "i"(sizeof(T)) : "cc");
    return;
  }
#endif
  pointer = known - 1;
}

// Stores before it are seen before stores after it, also by the child of a fork, which finds other threads stopped
// between any two instructions. Costs nothing on x86-64.
inline void order_stores() { std::atomic_thread_fence(std::memory_order_release); }

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace freestone
