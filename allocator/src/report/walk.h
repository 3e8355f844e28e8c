// Room 18, report: visits every live block, and checks that the records agree. Both expect a heap at rest: beside
// allocating threads the walk may miss a live block or visit a free one, and a check may fail for a moment.
#pragma once

#include "base/units.h"

namespace freestone {

// Calls visit(context, block, bytes) for each live block until it returns false. Blocks of heap objects count; blocks
// in a cache do not. Returns false if the walk itself finds no memory. The visitor must not allocate or free.
bool walk_live_blocks(bool (*visit)(void* context, void* block, usize bytes), void* context);

// Null if every invariant that it can check holds, else a description of the first that does not.
const char* find_damage();

}  // namespace freestone
