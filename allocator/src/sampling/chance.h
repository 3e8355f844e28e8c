// Room 17, sampling: the two functions that sampling needs, without libm, and the random numbers of a thread.
#pragma once

#include "base/bits.h"

namespace freestone {

// The natural logarithm of a normal positive number, to within 1e-14.
inline double natural_log(double x) {
  u64 word;
  __builtin_memcpy(&word, &x, sizeof word);
  auto exponent = static_cast<int>(word >> 52) - 1023;
  word = (word & low_mask(52)) | (u64{1023} << 52);
  double m;  // 1 <= m < 2, then moved around 1
  __builtin_memcpy(&m, &word, sizeof m);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++exponent;
  }
  // ln m = 2 artanh(z), z = (m - 1) / (m + 1), |z| < 0.172
  const double z = (m - 1) / (m + 1);
  const double square = z * z;
  double sum = 0;
  for (int k = 19; k > 0; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * z * sum + exponent * 0.6931471805599453;
}

// 1 - exp(-x) for x >= 0, to within 1e-14 of its value: exact also where x is tiny.
inline double chance_of_event(double x) {
  if (x > 40) return 1;
  // By the series for a small part of x, then doubling: 1 - e^-2y = p (2 - p).
  unsigned doublings = 0;
  while (x > 0.0625) {
    x /= 2;
    ++doublings;
  }
  double term = x;
  double p = x;
  for (int k = 2; k < 12; ++k) {
    term *= -x / k;
    p += term;
  }
  for (; doublings > 0; --doublings) p *= 2 - p;
  return p;
}

class ThreadRandom {  // SplitMix; zero-initialised TLS is its unseeded state
 public:
  bool seeded() const { return state_ != 0; }
  void seed(u64 value) { state_ = value | 1; }
  u64 next() { return next_mixed(state_); }
  // In (0, 1].
  double unit() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }
  // With mean 1.
  double exponential() { return -natural_log(unit()); }

  u64 state_ = 0;
};

}  // namespace freestone
