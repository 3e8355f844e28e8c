// Random numbers: xoshiro256** (Blackman and Vigna), seeded through splitmix64 so that no seed gives the all-zero state
// and every thread has a stream of its own.
#pragma once

#include <cstdint>

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
    const T moved = data[i - 1];
    data[i - 1] = data[j];
    data[j] = moved;
  }
}

}  // namespace workload
