// Room 9, front: blocks above the slabs in the hardened build.
//
// Such a block keeps what was asked for in its record and ends in an eight-byte mark right behind it. When freed it is sealed: it loses its
// memory and faults on every access until others have taken its place, as long as the thread's allowance lasts.
#pragma once

#include "front/block_words.h"

namespace freestone::hardened {

// Says it and aborts; returns under on_error:report.
void misuse(const char* kind, const void* block, usize block_bytes);

// free() and realloc() of what came from new are mistakes, and so is the wrong form of delete. What malloc gave may come back through
// delete: a program may replace one form of the operators and not the other.
FREESTONE_INLINE bool origins_match(Origin given, Origin taken) { return given == taken || given == Origin::c_call; }

// The request plus one and the origin of a large block share one word of its record; 0: free.
inline constexpr unsigned kLargeOriginShift = 56;
inline u64& large_request(const void* block) { return record_of(unit_of(block)).request_bytes; }
FREESTONE_INLINE u64 large_mark(const void* block, Origin origin) { return live_word(block, 0, origin, block_secret); }

// Whether the address, in a unit of this tag, is the start of a run that has a record of its request.
FREESTONE_INLINE bool has_record(const void* block, u8 tag) {
  return ((tag > kLastSmallClass && tag < kTagClassEnd) || tag == kTagRun) && address_of(block) % kUnitBytes == 0;
}
// Makes a block with a record that the heap gave out live.
FREESTONE_INLINE void* arm_large(void* block, usize bytes, Origin origin) {
  large_request(block) = (bytes + 1) | (u64{static_cast<u8>(origin)} << kLargeOriginShift);
  store_word(static_cast<char*>(block) + bytes, large_mark(block, origin));
  return block;
}
// False: the block is not live, and that has been said.
bool examine_large(const void* block, Claim& claim);
// Gives a live block another size where it is: within its span, and down to a quarter of it. Pages that a shrink gives up lose their memory
// and fault. False: it must move.
bool resize_in_place(void* block, const Claim& claim, usize bytes);
// Frees what has a record; `tag` is its unit's.
void deallocate_large(void* block, u8 tag, usize bytes, Origin origin);
// Frees whatever has none and is no block of a slab.
void deallocate_other(void* block);

}  // namespace freestone::hardened
