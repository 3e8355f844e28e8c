// Room 10, hardened: blocks above the slabs in the hardened build.
//
// Such a block keeps its request in its record. Right behind its bytes stand a keyed word, whose first byte is zero,
// and canary bytes up to the end of the page, at least 64 bytes. A free clears a class run, which waits in the
// store (span/run_store.h) and is checked as a whole when it is handed out again. A larger block is sealed while the
// process's allowance lasts: it loses its memory and faults on every access until others waited after it. Beyond it so
// is a block above 1 MiB, and one that was hardly used.
#pragma once

#include "hardened/block_words.h"
#include "platform/message.h"

namespace freestone::hardened {

// free() or realloc() of a block from new is a mistake, and so is the wrong form of delete. A block from malloc may
// come back through delete: a program may replace one of the operators and not the other. expect_match then allows the
// reverse, too.
FREESTONE_INLINE bool origins_match(Origin given, Origin taken) {
  return family_of(given) == family_of(taken) || family_of(given) == Origin::c_call;
}
// free() and realloc() name no alignment; every other form must name the one that was given, none included.
FREESTONE_INLINE bool alignments_match(Origin given, Origin taken, usize bytes) {
  if (family_of(given) != family_of(taken) || (taken == Origin::c_call && bytes == kUnknownBytes)) return true;
  return alignment_of(given) == alignment_of(taken);
}
// Reports a mismatch between a live block and the call that frees it. False: the block stays as it is.
bool expect_match(const void* block, usize block_bytes, const Claim& claim, usize bytes, Origin origin);

// The request plus one and the origin of a large block share one word of its record; 0: free.
inline constexpr unsigned kLargeOriginShift = 56;
inline constexpr u64 kShrunk = u64{1} << (kLargeOriginShift - 1);  // it has fewer pages than its span
inline u64& large_request(const void* block) { return record_of(unit_of(block)).request_bytes; }
// Whether the address, in a unit of this tag, is the start of a run that has a record of its request.
FREESTONE_INLINE bool has_record(const void* block, u8 tag) {
  return ((tag > kLastSmallClass && tag < kTagClassEnd) || tag == kTagRun) && address_of(block) % kUnitBytes == 0;
}
// Makes a block with a record, which the heap gave, live.
void* hand_out_large(void* block, usize bytes, Origin origin);
// The bytes asked for of the block with a record that starts there; kFreedBytes when it is not live.
inline constexpr usize kFreedBytes = kUnknownBytes - 1;
FREESTONE_INLINE usize large_live_bytes(const void* block) {
  const u64 request = large_request(block);
  return request == 0 ? kFreedBytes : (request & (kShrunk - 1)) - 1;
}
// False: the block is not live, which has been reported.
bool examine_large(const void* block, Claim& claim);
// Gives a live block another size where it is: down to a quarter of its span, or into free units behind its guard.
// Pages that a shrink gives up lose their memory and fault. False: it must move.
bool resize_in_place(void* block, const Claim& claim, usize bytes);
// Frees a block with a record; `tag` is its unit's.
void deallocate_large(void* block, u8 tag, usize bytes, Origin origin);
// A block with a mapping of its own: what was asked for stands in the table of the mappings. No bytes and a call of C
// where it does not.
void note_mapped(const void* block, usize bytes, Origin origin);
Claim mapped_claim(const void* block);
// Frees a block that has no record and is not in a slab.
void deallocate_unrecorded(void* block, usize bytes, Origin origin);

// How many bytes of a block above the slab classes can be read; its end may be a guard. 0 when it is not live.
usize readable_bytes(const void* block, usize block_bytes);

}  // namespace freestone::hardened
