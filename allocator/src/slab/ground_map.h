// Room 7, slab: the bitmaps of one ground (GROUND-1), for ground.cc.
#pragma once

#include <utility>

#include "base/bits.h"
#include "region/region.h"

namespace freestone {

inline constexpr usize kGranulesPerUnit = kUnitBytes / kGranule;
inline constexpr usize kWordsPerUnit = kGranulesPerUnit / 64;
inline usize granules_of(SizeClass size_class) { return class_info(size_class).bytes / kGranule; }

class Ground {
 public:
  explicit Ground(const void* block) : Ground(unit_of(block)) {}
  explicit Ground(UnitIndex unit) : head(&record_of(unit)) {
    first = head->ground.first;
    words = head->run_units * kWordsPerUnit;
    starts = head->ground.starts;
    lasts = starts + words;
    if (first != unit) head = &record_of(first);
  }
  usize granules() const { return words * 64; }
  usize granule_of(const void* pointer) const {
    return (address_of(pointer) - address_of(unit_address(first))) / kGranule;
  }
  char* at(usize granule) const { return unit_address(first) + granule * kGranule; }
  GroundUnit& facts() const { return head->ground; }

  // The first granule from `from` on whose bit is set; granules() if there is none.
  usize next(const Atomic<u64>* map, usize from) const {
    usize w = from / 64;
    if (w == words) return granules();
    if (const u64 word = map[w].load_relaxed() & ~u64{0} << (from % 64); word != 0) return w * 64 + lowest_bit(word);
    for (const usize end = words; ++w != end && map[w].load_operand() == 0;) {
    }
    return w != words ? w * 64 + lowest_bit(map[w].load_relaxed()) : granules();
  }
  // One more than the last granule before `end` whose bit is set; 0 if none is.
  static usize behind_last(const Atomic<u64>* map, usize end) {
    usize w = end / 64;
    u64 word = end % 64 != 0 ? map[w].load_relaxed() & low_mask(end % 64) : 0;
    while (word == 0 && w != 0) word = map[--w].load_relaxed();
    return word != 0 ? w * 64 + highest_bit(word) + 1 : 0;
  }
  // These granules become a block, or are one no longer. Whether they had both bits. Under the lock.
  bool toggle(usize from, usize granules) const {
    return (change(lasts, from + granules - 1) & change(starts, from)) != 0;
  }

  // Calls visit(from, granules) for each hole, in the order of addresses. Under the lock.
  template <typename Visit>
  void for_each_hole(Visit visit) const {
    u64 last_before = 0, borrow = 0;
    usize from = 0, length = 0;  // of the hole at the end of the words so far
    for (usize w = 0; w < words; ++w) {
      // Twice the lasts less the starts, as one number, has the bits of all granules in use.
      const u64 last = lasts[w].load_relaxed(), start = starts[w].load_relaxed();
      if ((last | start | last_before) == 0) {  // as the granule before
        if (borrow != 0) continue;
        if (length == 0) from = w * 64;
        length += 64;
        continue;
      }
      const u64 twice = last << 1 | last_before;
      const u64 used = twice - start - borrow;
      borrow = twice < start || (twice == start && borrow != 0) ? 1 : 0;
      last_before = last >> 63;
      u64 left = ~used;
      if ((left & 1) == 0 && length != 0) visit(from, std::exchange(length, usize{0}));
      while (left != 0) {
        const unsigned at = lowest_bit(left), run = trailing_ones(left >> at);
        if (length == 0) from = w * 64 + at;
        length += run;
        if (at + run == 64) break;
        visit(from, std::exchange(length, usize{0}));
        left &= ~u64{0} << (at + run);
      }
    }
    if (length != 0) visit(from, length);
  }

  Record* head;  // of the first unit
  UnitIndex first;
  usize words;
  Atomic<u64>* starts;
  Atomic<u64>* lasts;

 private:
  static u64 change(Atomic<u64>* map, usize granule) {
    const u64 before = map[granule / 64].load_relaxed();
    map[granule / 64].store_relaxed(before ^ bit(granule % 64));
    return before >> (granule % 64) & 1;
  }
};

}  // namespace freestone
