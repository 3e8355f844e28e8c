// Room 1, base: the quantities that the allocator counts in, and their conversions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace freestone {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;
using usize = std::size_t;

inline constexpr usize kKiB = usize{1} << 10;
inline constexpr usize kMiB = usize{1} << 20;
inline constexpr usize kGiB = usize{1} << 30;
inline constexpr usize kTiB = usize{1} << 40;

// A unit is the grain of the region: 16 KiB, also on kernels with 4 KiB pages. A larger OS page only makes purging
// coarser.
inline constexpr unsigned kUnitShift = 14;
inline constexpr usize kUnitBytes = usize{1} << kUnitShift;

// A position in the region, counted in units from its base. Position 0 belongs to the tag table, so 0 also means
// "none".
using UnitIndex = u32;
inline constexpr UnitIndex kNoUnit = 0;

constexpr usize units_to_bytes(usize units) { return units << kUnitShift; }
constexpr usize bytes_to_units(usize bytes) { return (bytes + kUnitBytes - 1) >> kUnitShift; }

constexpr usize round_up(usize value, usize power_of_two) { return (value + power_of_two - 1) & ~(power_of_two - 1); }
constexpr usize round_down(usize value, usize power_of_two) { return value & ~(power_of_two - 1); }
constexpr bool is_power_of_two(usize value) { return value != 0 && (value & (value - 1)) == 0; }

template <typename T>
constexpr T min_of(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
constexpr T max_of(T a, T b) {
  return a < b ? b : a;
}

// The first of the indices from `low` to `high` of which `is_before` is not true, by bisection: it is true of a first
// part of them.
template <typename Index, typename IsBefore>
constexpr Index partition_point(Index low, Index high, IsBefore is_before) {
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    is_before(middle) ? low = middle + 1 : high = middle;
  }
  return low;
}

inline usize address_of(const void* pointer) { return reinterpret_cast<usize>(pointer); }

}  // namespace freestone
