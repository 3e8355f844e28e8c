// Room 9, front: see hardened_memory.h.

#include "front/hardened_memory.h"

#include "config/options.h"
#include "front/hardened_large.h"
#include "front/hardened_paths.h"

namespace freestone::hardened {

namespace {

FREESTONE_SLOW void complain_freed(const void* block, usize block_bytes, bool writes) {
  misuse(writes ? "write after free" : "read after free", block, block_bytes);
}
FREESTONE_SLOW void complain_beyond(const void* block, usize block_bytes, bool writes) {
  misuse(writes ? "heap overflow" : "read past the end", block, block_bytes);
}

void check_in_slab(const char* from, usize bytes, u8 tag, bool writes) {
  const ClassInfo& info = class_info(tag);
  const usize offset = (address_of(from) - region.base) & kShapes.of[tag].offset_mask;
  const u32 number = block_number(info, offset);
  const usize inside = offset - usize{number} * info.bytes;
  const char* const block = from - inside;
  if (FREESTONE_UNLIKELY(number >= info.blocks)) return complain_beyond(block, 0, writes);  // what is left of the slab behind its last block
  const u64 word = load_trailer(block + info.bytes - kTrailerBytes);
  if (FREESTONE_UNLIKELY(word == 0)) return complain_freed(block, info.bytes, writes);
  if (FREESTONE_UNLIKELY(word == kChanging)) return;
  const usize live = claim_of(word).bytes;
  if (FREESTONE_UNLIKELY(inside > live || bytes > live - inside)) complain_beyond(block, info.bytes, writes);
}

// The first unit of the run that this one is inside of; kNoUnit when it is further away than is worth looking.
UnitIndex run_start(UnitIndex unit) {
  constexpr unsigned kLooks = 128;
  for (unsigned k = 0; k < kLooks; ++k, --unit) {
    if (tag_of(unit) != kTagInside) return unit;
  }
  return kNoUnit;
}

void check_in_run(const char* from, usize bytes, UnitIndex first, bool writes) {
  const u64 live = first != kNoUnit && has_record(unit_address(first), tag_of(first)) ? large_live_bytes(unit_address(first)) : kUnknownBytes;
  if (live == kUnknownBytes) return;
  const char* const block = unit_address(first);
  if (FREESTONE_UNLIKELY(live == kFreedBytes)) return complain_freed(block, 0, writes);
  const auto inside = static_cast<usize>(from - block);
  if (FREESTONE_UNLIKELY(inside > live || bytes > live - inside)) complain_beyond(block, live, writes);
}

}  // namespace

__attribute__((noinline)) void check_heap_access(const void* from, usize bytes, bool writes) {
  if (!options.check_libc || bytes == 0) return;
  const UnitIndex unit = unit_of(from);
  const u8 tag = tag_of(unit);
  const auto* const start = static_cast<const char*>(from);
  if (FREESTONE_LIKELY(is_slab_tag(tag))) return check_in_slab(start, bytes, tag, writes);
  if (tag == kTagInside) return check_in_run(start, bytes, run_start(unit), writes);
  if (tag == kTagRun || (tag > kLastSmallClass && tag < kTagClassEnd)) check_in_run(start, bytes, unit, writes);
}

}  // namespace freestone::hardened
