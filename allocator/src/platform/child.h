// Room 4, platform: noticing that this process is the child of a fork, without a system call and without having been
// told.
//
// A page that the kernel hands to children as zeros (MADV_WIPEONFORK) holds a mark. If the mark is gone, a fork has not
// been dealt with yet: the call that forked runs no handlers, or ours have not run yet. vfork shares memory, so it is
// no fork here. Where the kernel has no such pages, a child is noticed only when it is told.
#pragma once

#include "base/units.h"

namespace freestone {

// At start.
void mark_process();
// In a child, by its only thread, when the fork has been dealt with.
void mark_child();
bool notices_children();
// Whether the mark is gone. Any thread of the child may ask.
bool is_unmarked_child();
// How many forks lie between the first process and this one. Counts a fork that was not dealt with yet.
u32 process_generation();

}  // namespace freestone
