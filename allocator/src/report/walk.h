// Room 17, report: every live block, and whether the records agree. Both look at a heap at rest: while another thread
// allocates, a block may be missed or seen though it is free, and a check may fail that holds a moment later.
#pragma once

#include "base/units.h"

namespace freestone {

// Calls visit(context, block, bytes) for each live block until it returns false; a block in a cache is not live. Blocks
// of heap objects are included. False when there is no memory for the walk. The visitor may not allocate or free.
bool walk_live_blocks(bool (*visit)(void* context, void* block, usize bytes), void* context);

// Null when every invariant that can be checked holds, else the name of the first that does not.
const char* find_damage();

}  // namespace freestone
