// Room 9, front: looks at every block, live or free, in the hardened build. Called at exit and by malloc_trim.
#pragma once

#include "base/units.h"

namespace freestone::hardened {

// Says what it finds, as the calls do. Looks at slabs of `bytes_max` bytes together, the lowest first, and at the blocks above the slabs. Where
// other threads have caches only slabs of which the token can be held are looked at: any other may be released meanwhile.
void check_heap(usize bytes_max);

}  // namespace freestone::hardened
