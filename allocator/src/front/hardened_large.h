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

// Whether the address is the start of a run that has a record of its request.
bool has_record(const void* block);
// Makes a block that the heap gave out live. One without a record, a mapping or a sampled one, stays as it is.
void* arm_large(void* block, usize bytes, Origin origin);
// False: the block is not live, and that has been said.
bool examine_large(const void* block, Claim& claim);
// Gives a live block another size where it is: within its span, and down to a quarter of it. Pages that a shrink gives up lose their memory
// and fault. False: it must move.
bool resize_in_place(void* block, const Claim& claim, usize bytes);
// Frees whatever is no block of a slab.
void deallocate_other(void* block, usize bytes, Origin origin);

}  // namespace freestone::hardened
