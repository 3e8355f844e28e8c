// A histogram of whole numbers: exact below 256, then 128 steps per doubling (a value is known within 0.8 %).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "own.h"

namespace workload {

class Histogram {
 public:
  Histogram() : counts_(kBuckets) {}

  void record(std::uint64_t value) {
    ++counts_[index_of(value)];
    ++total_;
    if (value > largest_) largest_ = value;
  }
  void merge(const Histogram& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
    if (other.largest_ > largest_) largest_ = other.largest_;
  }
  std::uint64_t total() const { return total_; }
  std::uint64_t largest() const { return largest_; }

  // The smallest recorded value (within the bucket's width) that at least the share `q` of all values does not exceed.
  double percentile(double q) const {
    if (total_ == 0) return 0;
    const double exact_rank = q * static_cast<double>(total_);
    auto rank = static_cast<std::uint64_t>(std::ceil(exact_rank - 1e-9));
    if (rank == 0) rank = 1;
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen >= rank) return middle_of(i);
    }
    return static_cast<double>(largest_);
  }
  double mean() const {
    double sum = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) sum += middle_of(i) * static_cast<double>(counts_[i]);
    return total_ == 0 ? 0 : sum / static_cast<double>(total_);
  }
  // Calls `point(value, share of all values that are larger)` for a thinned set of values, in rising order.
  template <class F>
  void each_ccdf_point(F point) const {
    std::uint64_t seen = 0;
    double last = 2;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      if (counts_[i] == 0) continue;
      seen += counts_[i];
      const double beyond = static_cast<double>(total_ - seen) / static_cast<double>(total_);
      if (beyond <= 0) break;
      if (beyond > last * 0.97) continue;
      point(middle_of(i), beyond);
      last = beyond;
    }
  }

 private:
  static constexpr unsigned kStepBits = 7;
  static constexpr std::size_t kBuckets = (64 - kStepBits) * (1u << kStepBits) + (1u << kStepBits);
  static std::size_t index_of(std::uint64_t value) {
    if (value < (2u << kStepBits)) return static_cast<std::size_t>(value);
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kStepBits - 1;
    return (std::size_t{shift} << kStepBits) + static_cast<std::size_t>(value >> shift);
  }
  static double middle_of(std::size_t index) {
    if (index < (2u << kStepBits)) return static_cast<double>(index);
    const unsigned shift = static_cast<unsigned>(index >> kStepBits) - 1;
    const std::uint64_t low = (static_cast<std::uint64_t>(index) - (std::uint64_t{shift} << kStepBits)) << shift;
    return static_cast<double>(low) + (std::ldexp(1.0, static_cast<int>(shift)) - 1) / 2;
  }

  OwnArray<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
  std::uint64_t largest_ = 0;
};

}  // namespace workload
