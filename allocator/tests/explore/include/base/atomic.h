// Room 1, base: the atomics of src/base/atomic.h, which it stands in for, with the explorer deciding what they do.
#pragma once

#include <atomic>
#include <cstring>

#include "base/compiler.h"
#include "base/units.h"
#include "explore/explorer.h"

namespace freestone {

template <typename T>
class Atomic {
 public:
  constexpr Atomic() = default;
  constexpr explicit Atomic(T value) : value_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load_relaxed() const { return load(explore::Order::relaxed); }
  T load_operand() const { return load_relaxed(); }
  T load_acquire() const { return load(explore::Order::acquire); }
  T load_seq() const { return load(explore::Order::sequential); }
  void store_relaxed(T value) { store(value, explore::Order::relaxed); }
  void store_release(T value) { store(value, explore::Order::release); }
  void store_seq(T value) { store(value, explore::Order::sequential); }
  T exchange_acquire(T value) { return exchange(value, explore::Order::acquire); }
  T exchange_release(T value) { return exchange(value, explore::Order::release); }
  T exchange_seq(T value) { return exchange(value, explore::Order::sequential); }

  bool replace_acquire(T& expected, T desired) { return replace(expected, desired, explore::Order::acquire); }
  bool replace_seq(T& expected, T desired) { return replace(expected, desired, explore::Order::sequential); }

  void or_seq(T bits) { fetch_or_seq(bits); }
  void and_seq(T bits) { fetch_and_seq(bits); }
  T fetch_or_seq(T bits) {
    return change(explore::Order::sequential, [bits](T before) { return static_cast<T>(before | bits); });
  }
  T fetch_and_seq(T bits) {
    return change(explore::Order::sequential, [bits](T before) { return static_cast<T>(before & bits); });
  }
  T fetch_add_relaxed(T amount) {
    return change(explore::Order::relaxed, [amount](T before) { return static_cast<T>(before + amount); });
  }
  void add_relaxed(T amount) { fetch_add_relaxed(amount); }
  void add_release(T amount) {
    change(explore::Order::release, [amount](T before) { return static_cast<T>(before + amount); });
  }
  void sub_relaxed(T amount) {
    change(explore::Order::relaxed, [amount](T before) { return static_cast<T>(before - amount); });
  }
  void bump_single_writer(T amount) { store_relaxed(static_cast<T>(load_relaxed() + amount)); }

 private:
  static uint64_t bits_of(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
  static T value_of(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  static void write(void* place, uint64_t bits) { *static_cast<T*>(place) = value_of(bits); }

  T load(explore::Order order) const {
    if (!explore::is_running()) return value_;
    return value_of(explore::load(const_cast<T*>(&value_), bits_of(value_), order, write));
  }
  void store(T value, explore::Order order) {
    if (!explore::is_running()) {
      value_ = value;
      return;
    }
    explore::store(&value_, bits_of(value_), bits_of(value), order, write);
  }
  template <typename Function>
  T change(explore::Order order, Function function) {
    if (!explore::is_running()) {
      const T before = value_;
      value_ = function(before);
      return before;
    }
    const auto apply = [](uint64_t before, void* context, uint64_t& after) {
      after = bits_of((*static_cast<Function*>(context))(value_of(before)));
      return true;
    };
    return value_of(explore::modify(&value_, bits_of(value_), order, apply, &function, write));
  }
  T exchange(T value, explore::Order order) {
    return change(order, [value](T) { return value; });
  }
  bool replace(T& expected, T desired, explore::Order order) {
    if (!explore::is_running()) {
      if (value_ == expected) {
        value_ = desired;
        return true;
      }
      expected = value_;
      return false;
    }
    T both[2] = {expected, desired};
    const auto apply = [](uint64_t before, void* context, uint64_t& after) {
      const T* given = static_cast<T*>(context);
      after = bits_of(given[1]);
      return before == bits_of(given[0]);
    };
    const T before = value_of(explore::modify(&value_, bits_of(value_), order, apply, both, write));
    if (bits_of(before) == bits_of(expected)) return true;
    expected = before;
    return false;
  }

  T value_{};
};

template <typename T>
void advance_in_order(T*& pointer, T* known) {
  pointer = known + 1;
}
template <typename T>
void retreat(T*& pointer, T* known) {
  pointer = known - 1;
}
inline void order_stores() {
  if (explore::is_running()) explore::order_stores();
}
inline void order_all() {
  if (explore::is_running()) explore::order_all();
}
inline void cpu_relax() {
  if (explore::is_running()) explore::wait();
}

}  // namespace freestone
