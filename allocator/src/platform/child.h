// Room 4, platform: notices that this process is the child of a fork, without a system call and without being told.
//
// A page that the kernel hands to children as zeros (MADV_WIPEONFORK) holds a mark. If the mark is gone, a fork still
// has to be handled: either the call that forked runs no handlers, or ours have not run yet. vfork shares memory, so it
// does not count as a fork here. Without such pages, only the fork handlers tell a child what it is.
#pragma once

#include "base/units.h"

namespace freestone {

// At start.
void mark_process();
// Sets the mark again once the fork is handled. Called in a child by its only thread.
void mark_child();
bool notices_children();
// Whether the mark is gone. Any thread of the child may ask.
bool is_unmarked_child();
// How many forks lie between the first process and this one, including one that is not handled yet.
u32 process_generation();

}  // namespace freestone
