// Two clocks. `now_ns` times sections. `ticks_before`/`ticks_after` time one call: the fences keep the call's work
// between the two readings, and what an empty pair of readings costs is measured by `TickScale` and removed from every
// sample.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>

namespace workload {

inline std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

inline double thread_cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline void sleep_ms(std::uint64_t ms) {
  timespec left{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000 * 1'000'000)};
  while (nanosleep(&left, &left) != 0) {
  }
}

// Idles for so long, and looks every 50 ms.
template <class F>
void idle_ms(std::uint64_t ms, F look) {
  const std::uint64_t end = now_ns() + ms * 1'000'000;
  while (now_ns() < end) {
    sleep_ms(std::min<std::uint64_t>(50, ms));
    look();
  }
}

#if defined(__x86_64__)
inline std::uint64_t ticks_before() {
  std::uint32_t low, high;
  asm volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
  return std::uint64_t{high} << 32 | low;
}
inline std::uint64_t ticks_after() {
  std::uint32_t low, high, core;
  asm volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(core)::"memory");
  return std::uint64_t{high} << 32 | low;
}
#elif defined(__aarch64__)
inline std::uint64_t ticks_before() {
  std::uint64_t ticks;
  asm volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
  return ticks;
}
inline std::uint64_t ticks_after() { return ticks_before(); }
#else
inline std::uint64_t ticks_before() { return now_ns(); }
inline std::uint64_t ticks_after() { return now_ns(); }
#endif

// Both clocks at one moment. Being stopped between the two readings would put them apart by milliseconds: of several
// attempts the one that took the fewest ticks counts, and its ticks are those of its middle.
struct BothClocks {
  std::uint64_t ns = 0;
  std::uint64_t ticks = 0;

  static BothClocks read() {
    BothClocks best;
    std::uint64_t shortest = ~std::uint64_t{0};
    for (int attempt = 0; attempt < 32; ++attempt) {
      const std::uint64_t before = ticks_before();
      const std::uint64_t ns = now_ns();
      const std::uint64_t took = ticks_after() - before;
      if (took >= shortest) continue;
      shortest = took;
      best = {ns, before + took / 2};
    }
    return best;
  }
};

// Measures the length of a tick against the monotonic clock from construction until `ns_per_tick` is first asked for.
class TickScale {
 public:
  TickScale() : begin_(BothClocks::read()) {}
  double ns_per_tick() {
    if (scale_ > 0) return scale_;
    constexpr std::uint64_t kLeastNs = 20'000'000;  // a shorter base line would show the clock's own steps
    while (now_ns() - begin_.ns < kLeastNs) sleep_ms(1);
    const BothClocks end = BothClocks::read();
    scale_ = static_cast<double>(end.ns - begin_.ns) / static_cast<double>(end.ticks - begin_.ticks);
    return scale_;
  }

 private:
  BothClocks begin_;
  double scale_ = 0;
};

}  // namespace workload
