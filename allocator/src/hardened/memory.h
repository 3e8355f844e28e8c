// Room 10, hardened: whether an access of so many bytes stays inside the block that it begins in. For libc's memory
// functions in the hardened library (abi/libc_memory.cc, abi/libc_buffers.cc).
#pragma once

#include "hardened/block_words.h"
#include "hardened/large.h"

extern "C" [[noreturn]] void __chk_fail() __attribute__((weak));

namespace freestone::hardened {

// What is needed of a slab's tag to find the end of a block; all 0 for any other tag.
struct Reach {
  u64 inverse = 0;  // ceil(2^64 / bytes): what of offset * inverse is below the point, times bytes, is how far the
                    // offset lies in its block
  u32 bytes = 0;
  u32 offset_mask = 0;
  u32 end = 0;  // of the slab's last block; bytes of the slab may be left behind it
};
struct ReachTable {
  Reach of[kTagCount];
  constexpr ReachTable() : of() {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
      const ClassInfo& info = class_info(c);
      const auto offset_mask = static_cast<u32>(units_to_bytes(info.units)) - 1;
      of[c] = {~u64{0} / info.bytes + 1, info.bytes, offset_mask, info.blocks * info.bytes};
    }
  }
};
inline constexpr ReachTable kReach;

// The run that the thread last accessed through these functions. The record says whether it is still live, so a hint
// that is out of date does no harm.
struct LastRun {
  usize minus_start = 0;         // not its address, which would make a lost block reachable for the leak search
  const u64* request = nullptr;  // in its record; null: no run yet
};
extern FREESTONE_HIDDEN FREESTONE_THREAD_LOCAL LastRun last_runs[2];  // read from, written to

FREESTONE_INLINE bool is_in_last_run(const void* from, usize bytes, bool writes) {
  const LastRun& last = last_runs[writes];
  if (FREESTONE_UNLIKELY(last.request == nullptr)) return false;
  const usize live_end = __atomic_load_n(last.request, __ATOMIC_RELAXED) & (kShrunk - 1);  // plus one; 0: not live
  const usize inside = address_of(from) + last.minus_start;
  return FREESTONE_LIKELY(inside < live_end) && FREESTONE_LIKELY(bytes < live_end - inside);
}

// Whether it is seen at once that an access of so many bytes is right: outside the heap, or in one live block of a
// slab.
FREESTONE_INLINE bool is_plain_access(const void* from, usize bytes) {
  const usize from_base = address_of(from) - region.base;
  if (from_base >= region.frontier_bytes.load_operand()) return true;
  const Reach& reach = kReach.of[tag_table()[from_base >> kUnitShift]];
  const u32 offset = static_cast<u32>(from_base) & reach.offset_mask;
  if (FREESTONE_UNLIKELY(offset >= reach.end)) return false;
  const u64 below_point = offset * reach.inverse;
  const auto inside = static_cast<usize>((static_cast<unsigned __int128>(below_point) * reach.bytes) >> 64);
  const char* const block = static_cast<const char*>(from) - inside;
  const u64 word = load_trailer(block + reach.bytes - kTrailerBytes);
  const usize live = claim_of(word).bytes;
  // Only a live block's trailer has the check bits and a lowest byte of 0. Of 0 the check bits are wrong.
  return FREESTONE_LIKELY(is_trailer(block, word)) && FREESTONE_LIKELY(inside <= live) &&
         FREESTONE_LIKELY(bytes <= live - inside);
}

// Out of line, of an access that is not plain: looks again, and says what is wrong.
void check_access(const void* from, usize bytes, bool writes);

// The compiler's own check, of a destination whose size it knows.
FREESTONE_INLINE void expect_room(usize bytes, usize room) {
  if (FREESTONE_LIKELY(bytes <= room)) return;
  if (&__chk_fail != nullptr) __chk_fail();
  __builtin_trap();
}

}  // namespace freestone::hardened
