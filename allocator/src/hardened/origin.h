// Room 10, hardened: where a block came from.
#pragma once

#include "base/bits.h"
#include "base/units.h"

namespace freestone {

// The family of functions that a block came from and must go back through. Above kOriginFamilyBits: the binary
// logarithm of the alignment that the call named; 0 if it named none, or no more than every block has.
enum class Origin : u8 { c_call, new_object, new_array };
inline constexpr unsigned kOriginFamilyBits = 2;
constexpr Origin family_of(Origin origin) {
  return static_cast<Origin>(static_cast<u8>(origin) & low_mask(kOriginFamilyBits));
}
constexpr u8 alignment_of(Origin origin) { return static_cast<u8>(static_cast<u8>(origin) >> kOriginFamilyBits); }
// A value that is not an alignment matches none.
constexpr Origin with_alignment(Origin family, usize alignment) {
  constexpr unsigned kNoAlignment = 63;
  const unsigned logarithm = !is_power_of_two(alignment) ? kNoAlignment
                             : alignment <= kGranule     ? 0
                                                         : highest_bit(alignment);
  return static_cast<Origin>(static_cast<u8>(family) | logarithm << kOriginFamilyBits);
}
inline constexpr usize kUnknownBytes = ~usize{0};

}  // namespace freestone
