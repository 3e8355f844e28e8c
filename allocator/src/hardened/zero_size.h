// Room 10, hardened: what malloc(0) returns in the hardened build: distinct addresses in an inaccessible range.
//
// The range has a place every 16 bytes and a bit per place; the bit says whether the address is handed out, so a second
// free of it is seen. Lock-free. Where a search finds no free place in 64, the caller serves the request from the heap.
#pragma once

#include "base/units.h"

namespace freestone {

// Null when the kernel refuses the range, when another thread is making it, or when 64 places in a row are taken.
void* take_zero_size();
bool is_zero_size(const void* block);
// False when the address is not handed out.
bool return_zero_size(const void* block);

}  // namespace freestone
