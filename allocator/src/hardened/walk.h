// Room 10, hardened: checks blocks, live or free, in the hardened build. Called at exit and by malloc_trim.
#pragma once

#include "config/size_class.h"

namespace freestone::hardened {

// STATE-1: whether a block of a slab may end in 0. Not if it was taken, so a live one's end was overwritten by zeros.
bool may_end_in_zero(SizeClass size_class, const void* block);

// For malloc_trim: checks kTrimCheckBytes of blocks, the next ones each time, and reports what it finds as the calls
// do. While there are other threads, and in a child whose fork cut others short, it checks only slabs whose token it
// can hold: other slabs may be released meanwhile.
void check_next_part();
// Called before a fork, in the forking thread; and in the child, which learns late that it is one if no handler ran.
void note_fork();
void note_child(bool handlers_ran);

}  // namespace freestone::hardened
