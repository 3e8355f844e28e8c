// Room 11, heaps: the arenas that a program makes by jemalloc's interface.
//
// An arena is a heap object with a number, whose blocks free() and its like take too. Arena 0 is the process heap and
// is not among these.
//
// Any thread. Who destroys an arena sees to it that nobody uses it then, as in jemalloc.
#pragma once

#include "heaps/heap_object.h"

namespace freestone {

inline constexpr unsigned kArenasMax = 512;  // arena 0 is one; a place costs each process 8 bytes

// The number of a new arena, the lowest that is free; 0 if memory or numbers are out.
unsigned create_arena();
// Null if there is no arena of that number.
HeapObject* arena(usize number);
// Frees all blocks of the arena, and its number.
void destroy_arena(usize number);
// One more than the highest number that was ever in use.
unsigned arena_count();

}  // namespace freestone
