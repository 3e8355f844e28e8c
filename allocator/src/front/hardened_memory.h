// Room 9, front: whether an access of so many bytes stays inside the block that it begins in. For libc's memory functions in the hardened
// library (abi/libc_memory.cc).
#pragma once

#include "front/block_words.h"
#include "front/hardened.h"

namespace freestone::hardened {

// What is needed of a slab's tag to find the end of a block; 0 for any other tag.
struct Reach {
  u32 bytes = 0;
  u32 offset_mask = 0;
  u64 inverse = 0;
};
struct ReachTable {
  Reach of[kTagCount];
  constexpr ReachTable() : of() {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
      const ClassInfo& info = class_info(c);
      of[c] = {info.bytes, static_cast<u32>(units_to_bytes(info.units)) - 1, info.inverse};
    }
  }
};
inline constexpr ReachTable kReach;

// Out of line: the access begins in the heap, and it is not seen at once that it is right.
void check_heap_access(const void* from, usize bytes, bool writes);

FREESTONE_INLINE void check_access(const void* from, usize bytes, bool writes) {
  const usize from_base = address_of(from) - region.base;
  if (from_base >= region.frontier_bytes.load_relaxed()) return;
  const Reach& reach = kReach.of[tag_table()[from_base >> kUnitShift]];
  if (FREESTONE_UNLIKELY(reach.bytes == 0)) return check_heap_access(from, bytes, writes);
  const usize offset = from_base & reach.offset_mask;
  const usize inside = offset - ((offset * reach.inverse) >> kInverseShift) * reach.bytes;
  const u64 word = load_trailer(static_cast<const char*>(from) - inside + reach.bytes - kTrailerBytes);
  // A trailer that is not a live block's says 0 bytes.
  const usize end = inside + bytes;
  if (FREESTONE_UNLIKELY(end > claim_of(word).bytes || end < bytes)) check_heap_access(from, bytes, writes);
}

}  // namespace freestone::hardened
