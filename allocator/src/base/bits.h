// Room 1, base: bit tricks on 64-bit words.
#pragma once

#include "base/units.h"

namespace freestone {

constexpr unsigned lowest_bit(u64 word) { return static_cast<unsigned>(__builtin_ctzll(word)); }
constexpr unsigned highest_bit(u64 word) { return 63U ^ static_cast<unsigned>(__builtin_clzll(word)); }
// In plain arithmetic: the builtin calls a function of the compiler's library, which lies far from our code.
constexpr unsigned count_bits(u64 word) {
  constexpr u64 kEach = ~u64{0} / 255;  // a one in each byte
  word -= (word >> 1) & kEach * 0x55;
  word = (word & kEach * 0x33) + ((word >> 2) & kEach * 0x33);
  return static_cast<unsigned>(((word + (word >> 4)) & kEach * 0x0f) * kEach >> 56);
}
constexpr u64 bit(unsigned position) { return u64{1} << position; }
constexpr unsigned trailing_ones(u64 word) { return word == ~u64{0} ? 64 : lowest_bit(~word); }

// The lowest `count` bits set; `count` may be 64.
constexpr u64 low_mask(unsigned count) { return count >= 64 ? ~u64{0} : bit(count) - 1; }

// The positions at which a stretch of `length` set bits starts (1 <= length <= 64).
constexpr u64 stretch_starts(u64 word, unsigned length) {
  unsigned have = 1;
  while (have < length) {
    const unsigned step = min_of(have, length - have);
    word &= word >> step;
    have += step;
  }
  return word;
}

// The length of the longest stretch of set bits. Doubling finds the highest power of two that fits; halving refines it.
constexpr unsigned longest_stretch(u64 word) {
  const u64 beyond_first = word + (word & -word);
  if ((word & beyond_first) == 0) return count_bits(word);  // one stretch or none
  u64 stretches[7] = {word};  // stretches[k]: where stretches of at least 2^k bits start
  unsigned k = 0;
  while (k < 6) {
    const u64 next = stretches[k] & (stretches[k] >> (1U << k));
    if (next == 0) break;
    stretches[++k] = next;
  }
  u64 starts = stretches[k];
  unsigned length = 1U << k;
  while (k-- > 0 && length < 64) {
    if (const u64 longer = starts & (stretches[k] >> length); longer != 0) {
      starts = longer;
      length += 1U << k;
    }
  }
  return length;
}

static_assert(stretch_starts(0b0111'0110, 3) == 0b0001'0000);
static_assert(stretch_starts(~u64{0}, 64) == 1);
static_assert(longest_stretch(0b0111'0110) == 3 && longest_stretch(0) == 0 && longest_stretch(~u64{0}) == 64 &&
              longest_stretch(~u64{1}) == 63);

// A 64-bit mixing step (Steele et al., SplitMix). It is a bijection, and every input bit reaches every output bit.
constexpr u64 mix_bits(u64 value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9ULL;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}
// The next number of a generator whose state is one word (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators").
constexpr u64 next_mixed(u64& state) { return mix_bits(state += 0x9e3779b97f4a7c15ULL); }

}  // namespace freestone
