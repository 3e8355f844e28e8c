// Room 10, hardened: see memory.h.

#include "hardened/memory.h"

#include "config/options.h"
#include "hardened/large.h"
#include "hardened/paths.h"
#include "hardened/walk.h"

namespace freestone::hardened {

FREESTONE_THREAD_LOCAL LastRun last_runs[2];

namespace {

FREESTONE_SLOW void complain_freed(const void* block, usize block_bytes, bool writes) {
  misuse(writes ? "write after free" : "read after free", block, block_bytes);
}
// The access begins `inside` bytes from the start of a block of which `live` were asked for.
FREESTONE_SLOW void complain_beyond(const void* block, usize block_bytes, usize live, usize inside, bool writes) {
  misuse(writes ? "heap overflow" : "read past the end", block, {block_bytes, live, max_of(live, inside)});
}

FREESTONE_SLOW void check_in_slab(const char* from, usize bytes, u8 tag, bool writes) {
  if (!options.check_libc || bytes == 0) return;
  const ClassInfo& info = class_info(tag);
  const usize offset = (address_of(from) - region.base) & kShapes.of[tag].offset_mask;
  const u32 number = block_number(info, offset);
  const usize inside = offset - usize{number} * info.bytes;
  const char* const block = from - inside;
  if (number >= info.blocks)
    return complain_beyond(block, 0, 0, inside, writes);  // what is left of the slab behind its last block
  const char* const trailer = block + info.bytes - kTrailerBytes;
  const u64 word = load_trailer(trailer);
  if (word == free_word(block) || (word == 0 && may_end_in_zero(tag, block)))
    return complain_freed(block, info.bytes, writes);
  if (is_changing(block, trailer)) return;
  if (word == 0 || !is_trailer(block, word)) return misuse("heap overflow", block, info.bytes);
  const usize live = claim_of(word).bytes;
  if (inside > live || bytes > live - inside) complain_beyond(block, info.bytes, live, inside, writes);
}

// The first unit of the run that this one is inside of.
UnitIndex run_start(UnitIndex unit) {
  constexpr UnitIndex kAtOnce = sizeof(u64);
  constexpr u64 kAllInside = u64{kTagInside} * 0x0101'0101'0101'0101;
  for (;; unit -= kAtOnce) {
    const u64 other = load_word(tag_table() + unit - (kAtOnce - 1)) ^ kAllInside;  // the unit's own in the highest byte
    if (other != 0) return unit - static_cast<UnitIndex>(63 - highest_bit(other)) / 8;
  }
}

FREESTONE_SLOW void complain_in_run(const char* block, usize bytes, usize live, usize inside, bool writes) {
  if (!options.check_libc || bytes == 0) return;
  live == kFreedBytes ? complain_freed(block, 0, writes) : complain_beyond(block, live, live, inside, writes);
}

}  // namespace

__attribute__((noinline)) void check_access(const void* from, usize bytes, bool writes) {
  const UnitIndex unit = unit_of(from);
  const u8 tag = tag_of(unit);
  const auto* const start = static_cast<const char*>(from);
  if (is_slab_tag(tag)) return check_in_slab(start, bytes, tag, writes);
  const UnitIndex first = tag == kTagInside ? run_start(unit) : unit;
  const u8 at_start = tag_of(first);
  if (FREESTONE_UNLIKELY(at_start == kTagNone)) return complain_in_run(start, bytes, kFreedBytes, 0, writes);
  if (at_start != kTagRun && (at_start <= kLastSmallClass || at_start >= kTagClassEnd)) return;
  const char* const block = unit_address(first);
  last_runs[writes] = {0 - address_of(block), &large_request(block)};
  const usize live = large_live_bytes(block);
  const auto inside = static_cast<usize>(start - block);
  if (FREESTONE_UNLIKELY(live == kFreedBytes || inside > live || bytes > live - inside))
    complain_in_run(block, bytes, live, inside, writes);
}

}  // namespace freestone::hardened
