// The laws that sizes and slots are drawn from, each with the formula that `freestone-workload laws` is tested against,
// and the random numbers behind them: xoshiro256** (Blackman and Vigna), seeded through splitmix64, by which no seed
// gives the all-zero state and every thread has a stream of its own.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "own.h"

namespace workload {

inline std::uint64_t splitmix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) {
    std::uint64_t mix = seed;
    mix = splitmix(mix) ^ (stream * 0xD1342543DE82EF95u);
    for (auto& word : s_) word = splitmix(mix);
  }

  std::uint64_t next() {
    const std::uint64_t result = rotl(s_[1] * 5, 7) * 9;
    const std::uint64_t t = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= t;
    s_[3] = rotl(s_[3], 45);
    return result;
  }

  // Uniform in [0, bound), bound up to 2^32: the bias is below bound / 2^64.
  std::uint32_t below(std::uint64_t bound) {
    return static_cast<std::uint32_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  std::uint32_t between(std::uint64_t low, std::uint64_t high) {
    return static_cast<std::uint32_t>(low + below(high - low + 1));
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // [0, 1)

 private:
  static std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::uint64_t s_[4];
};

template <class T>
void shuffle(T* data, std::size_t count, Random& random) {
  for (std::size_t i = count; i > 1; --i) {
    const std::size_t j = random.below(i);
    std::swap(data[i - 1], data[j]);
  }
}

// `count` numbers, drawn before the clock starts.
template <class Draw>
auto drawn(std::size_t count, Draw draw) {
  OwnArray<decltype(draw())> all(count);
  for (auto& each : all) each = draw();
  return all;
}

// P(s) = ln((s+1)/s) / ln((2^E+1)/5) for s in 5 ... 2^E: as good as proportional to 1/s, every octave equally likely.
class ArticleSizes {
 public:
  explicit ArticleSizes(unsigned exponent) : top_(1u << exponent), span_(std::log((top_ + 1.0) / kLeast)) {}
  std::uint32_t draw(Random& random) const {
    const auto size = static_cast<std::uint32_t>(kLeast * std::exp(random.unit() * span_));
    return size > top_ ? top_ : size;
  }
  static constexpr double kLeast = 5.0;

 private:
  std::uint32_t top_;
  double span_;
};

// Octave k (sizes 2^(k+2)+1 ... 2^(k+3)) with probability 2^-(k+1), the last octave (k = E-3) with what is left;
// uniform inside: the probability of a single size falls as 1/s^2.
class ProgramSizes {
 public:
  explicit ProgramSizes(unsigned exponent) : mask_((1u << (exponent - 3)) - 1) {}
  std::uint32_t draw(Random& random) const {
    const std::uint64_t bits = random.next();
    const unsigned octave = static_cast<unsigned>(std::countr_zero((static_cast<std::uint32_t>(bits) & mask_) + 1));
    const std::uint32_t base = 1u << (octave + 2);
    return 1 + base + (static_cast<std::uint32_t>(bits >> 32) & (base - 1));
  }

 private:
  std::uint32_t mask_;
};

// 80 % of the picks fall on 20 % of the slots, folded six times: segment i is picked with P[i] = binomial(6, 0.2) at i
// and covers the share P[6-i] of the slots; uniform inside a segment. Every segment has at least one slot.
class FoldedSlots {
 public:
  static constexpr std::array<double, 7> kShare = {0.262144, 0.393216, 0.24576, 0.08192, 0.01536, 0.001536, 0.000064};
  explicit FoldedSlots(std::uint32_t slots) {
    double covered = 0;
    double picked = 0;
    for (unsigned i = 0; i < 7; ++i) {
      covered += kShare[6 - i];
      picked += kShare[i];
      first_[i + 1] = static_cast<std::uint32_t>(std::llround(covered * slots));
      if (first_[i + 1] <= first_[i]) first_[i + 1] = first_[i] + 1;
      bound_[i] = static_cast<std::uint64_t>(picked * 4294967296.0);
    }
    first_[7] = slots;
    bound_[6] = std::uint64_t{1} << 32;
  }
  static constexpr std::uint32_t kLeastSlots = 64;
  std::uint32_t draw(Random& random) const {
    const std::uint64_t pick = random.next() >> 32;
    unsigned i = 0;
    while (pick >= bound_[i]) ++i;
    return first_[i] + random.below(first_[i + 1] - first_[i]);
  }
  std::uint32_t first_of(unsigned segment) const { return first_[segment]; }

 private:
  std::array<std::uint32_t, 8> first_{};
  std::array<std::uint64_t, 7> bound_{};
};

// 60 % uniform 16...256, 30 % uniform 512...2048, 10 % uniform 4096...32768 bytes.
inline std::uint32_t draw_band_size(Random& random) {
  const std::uint32_t pick = random.below(10);
  if (pick < 6) return random.between(16, 256);
  if (pick < 9) return random.between(512, 2048);
  return random.between(4096, 32768);
}

// Log-uniform 16...65536: every octave equally likely, P(s) = ln((s+1)/s) / ln(65537/16).
inline std::uint32_t draw_log_uniform(Random& random) {
  return static_cast<std::uint32_t>(16.0 * std::exp(random.unit() * std::log(65537.0 / 16.0)));
}

// The mixture of `cfrac-like`: 40 % malloc of 16...128, 20 % free, 20 % realloc by 16...80 more, 20 % calloc of
// 32...128.
enum class CfracCall : std::uint8_t { malloc_call, free_call, realloc_call, calloc_call };
struct CfracStep {
  CfracCall call;
  std::uint8_t bytes;
};
inline CfracStep draw_cfrac_step(Random& random) {
  const std::uint32_t pick = random.below(10);
  if (pick < 4) return {CfracCall::malloc_call, static_cast<std::uint8_t>(random.between(16, 128))};
  if (pick < 6) return {CfracCall::free_call, 0};
  if (pick < 8) return {CfracCall::realloc_call, static_cast<std::uint8_t>(random.between(16, 80))};
  return {CfracCall::calloc_call, static_cast<std::uint8_t>(random.between(32, 128))};
}

// Draws from every law with a fixed seed and prints the counts; the test holds the formulas and compares.
void dump_laws();

}  // namespace workload
