// Room 15, guards: sampled guards. A guarded block lies against an inaccessible page and becomes inaccessible when it
// is freed: an overflow or a use after free faults at once, and the report names both stacks. After GWP-ASan
// (Serebryany et al.), but with units of the region instead of a fixed pool of pages, so a guarded block may have any
// size up to kGuardedBytesMax.
//
//   units   | guard ......... | page with the block | guard |
//
// Half of the blocks end at the guard, up to malloc's alignment, to catch overflows; the other half begin at it, to
// catch underflows. There are at most guard_slots blocks, live and freed ones together. The oldest freed one makes
// room.
//
// GUARD-1  A freed block's units go back only after their pages are accessible again.
#pragma once

#include "base/units.h"

namespace freestone {

inline constexpr usize kGuardedBytesMax = 32 * kMiB;

// A guarded block. Null if there is no slot or no memory.
void* guard_allocate(usize bytes, usize alignment);
// Whether the sampled units that start here belong to a guarded block.
bool is_guarded(UnitIndex first);
// Reports and ends the process if the block was freed before, or if the bytes beside it changed.
void guard_check_free(void* block, UnitIndex first);
void guard_deallocate(UnitIndex first);
// Gives back the units of freed blocks, and forgets the blocks.
void guard_release_freed();
// Reports and ends the process if the address belongs to a guarded block. Returns otherwise.
void guard_misused(const char* call, const void* block);

// Handles SIGSEGV and SIGBUS: reports a fault in a guarded block's units, then calls the handler that was there before.
void guard_install_handler();

void guard_before_fork();
void guard_after_fork_in_parent();
void guard_after_fork_in_child();

}  // namespace freestone
