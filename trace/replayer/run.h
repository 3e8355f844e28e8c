// replayer/run.h: carries out a plan and measures it. Nothing here allocates while the replay runs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "replayer/plan.h"

namespace freestone::trace {

struct RunOptions {
  double pace = 0;         // 0: as fast as possible; 1: as recorded
  unsigned copies = 1;     // of the whole trace, side by side
  unsigned idle_ms = 200;  // the wait after the last call
  bool null = false;       // replay without an allocator
  double own_kib = -1;     // memory that is no allocator's; below 0: what there is before the first call
};

// One call in so many is timed, as reading the counter takes longer than most calls; a prime meets all of a loop's.
inline constexpr unsigned kTimedEvery = 7;

// Times of calls, in cycles: exact below 64, then 16 steps to a doubling.
struct Histogram {
  static constexpr unsigned kBuckets = 64 + 58 * 16;
  std::array<uint64_t, kBuckets> counts;
  uint64_t sum;
  uint64_t timed;
  uint64_t calls;  // those that were not timed too

  static unsigned bucket(uint64_t cycles) {
    if (cycles < 64) return static_cast<unsigned>(cycles);
    const auto top = static_cast<unsigned>(63 - __builtin_clzll(cycles));
    return 64 + (top - 6) * 16 + static_cast<unsigned>(cycles >> (top - 4) & 15);
  }
  static uint64_t lower_edge(unsigned bucket) {
    if (bucket < 64) return bucket;
    const unsigned top = (bucket - 64) / 16 + 6;
    return (uint64_t{16} + (bucket - 64) % 16) << (top - 4);
  }
  void add(uint64_t cycles) {
    counts[bucket(cycles)]++;
    sum += cycles;
    timed++;
  }
  void merge(const Histogram& other);
  double percentile(double share) const;  // in cycles
};

struct Outcome {
  Histogram births{};
  Histogram deaths{};
  uint64_t checksum = 0;
  uint64_t failures = 0;  // calls that returned no memory where the recorded one did
  double wall_s = 0;      // the replay without the idle time
  double cpu_s = 0;       // of all threads in that time
  double own_s = 0;       // the same of a second replay, without an allocator: no allocator's cost
  double begin_kib = 0;   // memory before the first call
  double cycles_per_ns = 1;
  double clock_cycles = 0;  // what measuring adds to one call
  double peak_kib = 0;
  double mean_kib = 0;
  double idle_kib = 0;
  double live_mean_kib = 0;
  uint64_t faults = 0;
  std::span<const double> resident_kib;  // at the end of each window
};

// A plan in memory. Throws Error if the bytes are no plan.
class Plan {
 public:
  explicit Plan(std::span<const uint8_t> bytes);

  const PlanHeader& header() const { return *header_; }
  std::span<const PlanThread> threads() const { return {threads_, header_->threads}; }
  std::span<const PlanWindow> windows() const { return {windows_, header_->windows}; }
  std::span<const Op> ops(const PlanThread& thread) const { return {ops_ + thread.first_op, thread.ops}; }

 private:
  const PlanHeader* header_;
  const PlanThread* threads_;
  const PlanWindow* windows_;
  const Op* ops_;
};

Outcome run_plan(const Plan& plan, const RunOptions& options);

}  // namespace freestone::trace
