// Random numbers whose seed is printed, so that a failure can be repeated with FREESTONE_TEST_SEED.
#pragma once

#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace freestone_test {

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t limit) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * limit) >> 64);
  }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Every power of two between the bounds is equally likely.
  uint64_t log_uniform(double low, double high) {
    return static_cast<uint64_t>(low * std::exp(unit() * std::log(high / low)));
  }

 private:
  uint64_t state_;
};

inline uint64_t test_seed(const char* what) {
  uint64_t seed = 0;
  if (const char* given = std::getenv("FREESTONE_TEST_SEED")) {
    seed = std::strtoull(given, nullptr, 0);
  } else if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    seed = 1;
  }
  std::printf("%s: FREESTONE_TEST_SEED=0x%llx\n", what, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

// FREESTONE_TEST_OPS multiplies the length of every random test (default 1; 10 is the long mode). At least 1 remains.
inline uint64_t scaled(uint64_t count) {
  const char* factor = std::getenv("FREESTONE_TEST_OPS");
  const double value = factor == nullptr ? 1.0 : std::atof(factor);
  return value <= 0 ? count : std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(count) * value));
}

}  // namespace freestone_test
