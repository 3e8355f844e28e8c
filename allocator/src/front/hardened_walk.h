// Room 9, front: looks at every block, live or free, in the hardened build. Called at exit and by malloc_trim.
#pragma once

#include "base/units.h"

namespace freestone::hardened {

// Reports what it finds, as the calls do. Looks at `bytes_max` bytes of slabs, the lowest first, and at the blocks
// above the slabs. While other threads have caches it looks only at slabs whose token it can hold: others may be
// released.
void check_heap(usize bytes_max);

}  // namespace freestone::hardened
