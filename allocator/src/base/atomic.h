// Room 1, base: atomics with the memory order in the name. There is no default order.
//
// `or_` and `and_` without a result compile to one locked instruction on x86-64; the `fetch_` forms become a
// compare-exchange loop there unless the result is unused, so a caller that needs no old value says so.
//
// It uses the compiler's builtins, because including <atomic> takes longer than compiling most files of the allocator.
#pragma once

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

  T load_relaxed() const { return load<__ATOMIC_RELAXED>(); }
  // Relaxed, for a fast path that uses the value once. gcc gives each atomic load an instruction of its own, but makes
  // a plain load an operand of the compare. One load of an aligned word is never torn.
  [[gnu::always_inline]] T load_operand() const {
    if constexpr (FREESTONE_SANITIZED || sizeof(T) > sizeof(void*)) return load_relaxed();
    return value_;
  }
  T load_acquire() const { return load<__ATOMIC_ACQUIRE>(); }
  T load_seq() const { return load<__ATOMIC_SEQ_CST>(); }
  void store_relaxed(T value) { __atomic_store(&value_, &value, __ATOMIC_RELAXED); }
  void store_release(T value) { __atomic_store(&value_, &value, __ATOMIC_RELEASE); }
  void store_seq(T value) { __atomic_store(&value_, &value, __ATOMIC_SEQ_CST); }
  T exchange_acquire(T value) { return exchange<__ATOMIC_ACQUIRE>(value); }
  T exchange_release(T value) { return exchange<__ATOMIC_RELEASE>(value); }
  T exchange_seq(T value) { return exchange<__ATOMIC_SEQ_CST>(value); }

  bool replace_acquire(T& expected, T desired) {
    return __atomic_compare_exchange(&value_, &expected, &desired, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }
  bool replace_seq(T& expected, T desired) {
    return __atomic_compare_exchange(&value_, &expected, &desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }

  void or_seq(T bits) { __atomic_fetch_or(&value_, bits, __ATOMIC_SEQ_CST); }
  void and_seq(T bits) { __atomic_fetch_and(&value_, bits, __ATOMIC_SEQ_CST); }
  T fetch_or_seq(T bits) { return __atomic_fetch_or(&value_, bits, __ATOMIC_SEQ_CST); }
  T fetch_and_seq(T bits) { return __atomic_fetch_and(&value_, bits, __ATOMIC_SEQ_CST); }
  T fetch_add_relaxed(T amount) { return __atomic_fetch_add(&value_, amount, __ATOMIC_RELAXED); }
  void add_relaxed(T amount) { __atomic_fetch_add(&value_, amount, __ATOMIC_RELAXED); }
  void add_release(T amount) { __atomic_fetch_add(&value_, amount, __ATOMIC_RELEASE); }
  void sub_relaxed(T amount) { __atomic_fetch_sub(&value_, amount, __ATOMIC_RELAXED); }

  // A counter with a single writer: readers on other threads see whole values, the writer pays no locked instruction.
  void bump_single_writer(T amount) { store_relaxed(static_cast<T>(load_relaxed() + amount)); }

 private:
  template <int kOrder>
  [[gnu::always_inline]] T load() const {
    T value;
    __atomic_load(&value_, &value, kOrder);
    return value;
  }
  template <int kOrder>
  [[gnu::always_inline]] T exchange(T value) {
    T old;
    __atomic_exchange(&value_, &value, &old, kOrder);
    return old;
  }

  alignas(sizeof(T)) T value_{};
  static_assert(__atomic_always_lock_free(sizeof(T), nullptr));
};

// Advances by one place a pointer that only this thread writes. The child of a fork sees earlier stores first: the
// kernel waits for every processor's stores before it shows the child a page. Other threads are promised no order. One
// instruction on x86-64, without a lock prefix.
template <typename T>
[[gnu::always_inline]] inline void advance_in_order(T*& pointer, T* known) {
#if defined(__x86_64__)
  if constexpr (!FREESTONE_SANITIZED) {
    asm volatile("addq %1, %0" : "+m"(pointer) : "i"(sizeof(T)) : "memory", "cc");
    return;
  }
#endif
  asm volatile("" : : : "memory");
  __atomic_store_n(&pointer, known + 1, FREESTONE_SANITIZED ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
}

// Moves such a pointer back by one place. Promises no order. One instruction on x86-64.
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

// Earlier stores become visible before later ones. This also holds for the child of a fork, which finds other threads
// stopped between any two instructions. Costs nothing on x86-64.
FREESTONE_INLINE void order_stores() {
#if defined(__aarch64__)
  if constexpr (!FREESTONE_SANITIZED) {
    asm volatile("dmb ishst" : : : "memory");
    return;
  }
#endif
  __atomic_thread_fence(__ATOMIC_RELEASE);
}

// Of two threads that store, call this and load what the other stored, one at least sees the other's store.
inline void order_all() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace freestone
