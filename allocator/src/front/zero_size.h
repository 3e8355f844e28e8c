// Room 9, front: what malloc(0) returns in the hardened build: distinct addresses in an inaccessible range.
//
// The range has a place every 16 bytes and a bit per place; the bit says whether the address is handed out, so a second
// free of it is seen. Lock-free. When every place is taken, the caller serves the request from the heap.
#pragma once

#include "base/units.h"

namespace freestone {

// Null when the kernel refuses the range or it is full.
void* take_zero_size();
bool is_zero_size(const void* block);
// False when the address is not handed out.
bool return_zero_size(const void* block);

}  // namespace freestone
