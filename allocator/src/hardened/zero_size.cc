// Room 10, hardened: see zero_size.h.

#include "hardened/zero_size.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "platform/os.h"

namespace freestone {

namespace {

constexpr usize kPlaceBytes = 16;
constexpr usize kPlaces = usize{1} << 16;  // more would count where a program limits or locks its address space
constexpr usize kWords = kPlaces / 64;

Atomic<usize> range;       // its address; 0 until first used. Published after `taken`.
Atomic<u64>* taken;        // a bit per place
Atomic<usize> next_place;  // where the search begins

bool make_range() {
  void* bits = os::map(kWords * sizeof(u64));
  void* places = os::reserve(kPlaces * kPlaceBytes, 0);
  if (bits == nullptr || places == nullptr) return false;
  taken = static_cast<Atomic<u64>*>(bits);
  usize expected = 0;
  range.replace_seq(expected, address_of(places));
  return true;
}

}  // namespace

// The first thread makes the range. Others that come meanwhile get null, and so does everybody where the kernel
// refused.
void* take_zero_size() {
  static Atomic<u32> makers;
  if (range.load_acquire() == 0 && (makers.fetch_add_relaxed(1) != 0 || !make_range())) return nullptr;
  for (usize tries = 0; tries < 64; ++tries) {
    const usize place = next_place.fetch_add_relaxed(1) % kPlaces;
    const u64 mine = bit(place % 64);
    if ((taken[place / 64].fetch_or_seq(mine) & mine) == 0)
      return reinterpret_cast<void*>(range.load_relaxed() + place * kPlaceBytes);
  }
  return nullptr;
}

bool is_zero_size(const void* block) {
  const usize start = range.load_acquire();
  return start != 0 && address_of(block) - start < kPlaces * kPlaceBytes;
}

bool return_zero_size(const void* block) {
  const usize offset = address_of(block) - range.load_acquire();
  const usize place = offset / kPlaceBytes;
  const u64 mine = bit(place % 64);
  return offset % kPlaceBytes == 0 && (taken[place / 64].fetch_and_seq(~mine) & mine) != 0;
}

}  // namespace freestone
