// Room 8, cache: see budget.h.

#include "cache/budget.h"

namespace freestone {

// Read at every growth: not beside what changes often.
alignas(64) constinit Atomic<u32> caches_in_use;
alignas(64) constinit Atomic<usize> all_capacity_bytes;

}  // namespace freestone
