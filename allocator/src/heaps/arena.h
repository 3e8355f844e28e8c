// Room 11, heaps: the arenas that a program makes by jemalloc's interface.
//
// An arena is a numbered heap object whose blocks free() and its like accept too. Arena 0 is the process heap and is
// not among these. If another malloc serves the program (FREESTONE_DISABLE=1), an arena is only a number: that malloc
// serves its requests, and a reset frees nothing.
//
// Any thread. An arena must not be in use when it is destroyed, as in jemalloc.
#pragma once

#include "heaps/heap_object.h"

namespace freestone {

inline constexpr unsigned kArenasMax = 512;  // arena 0 is one; a place costs each process 8 bytes

// The number of a new arena, the lowest that is free; 0 if memory or numbers are out.
unsigned create_arena();
// Whether there is an arena of that number, and the heap that it stands for; null if there is none.
bool is_made_arena(usize number);
HeapObject* arena(usize number);
// Frees all blocks of the arena, and its number.
void destroy_arena(usize number);
// One more than the highest number that was ever in use.
unsigned arena_count();

}  // namespace freestone
