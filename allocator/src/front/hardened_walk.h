// Room 9, front: looks at every block, live or free, in the hardened build. Called at exit and by malloc_trim.
#pragma once

#include "base/units.h"

namespace freestone::hardened {

// Reports what it finds, as the calls do. Looks at `bytes_max` bytes of slabs, the lowest first, and at the blocks
// above the slabs. While there are other threads, and in a child whose fork cut others short, it looks only at slabs
// whose token it can hold: others may be released.
void check_heap(usize bytes_max);
// Before a fork, in the forking thread; and in the child, which may learn late that it is one: then no handler ran.
void note_fork();
void note_child(bool handlers_ran);

}  // namespace freestone::hardened
