// Room 14, guards: sampled guards. A sampled block lies against an inaccessible page and stays inaccessible after its
// free, so that a write beyond it, or a use after free, faults at once; the report names both stacks. After GWP-ASan
// (Serebryany et al.), with units of the region instead of a fixed pool of pages, so blocks of any size up to
// kGuardedBytesMax can be guarded.
//
//   units   | guard ......... | page with the block | guard |
//
// Half of the blocks are right-aligned, to catch overflows to within the alignment of malloc, and half left-aligned, to
// catch underflows.
//
// At most guard_slots blocks, live ones and freed ones together; the oldest freed one makes room.
//
// GUARD-1  A freed block's units go back only after their pages are accessible again.
#pragma once

#include "base/units.h"

namespace freestone {

inline constexpr usize kGuardedBytesMax = 32 * kMiB;

// A guarded block; null when there is no slot or no memory.
void* guard_allocate(usize bytes, usize alignment);
// Whether the sampled units that start here are a guarded block's.
bool is_guarded(UnitIndex first);
// Reports and ends the process when the block was freed before.
void guard_check_free(void* block, UnitIndex first);
void guard_deallocate(UnitIndex first);
// Gives back the units of freed blocks, which are then no longer recognised.
void guard_release_freed();
// Reports and ends the process when the address belongs to a guarded block; returns when it does not.
void guard_misused(const char* call, const void* block);

// Handles SIGSEGV and SIGBUS: reports a fault in a guarded block's units, then hands on to whoever handled the signal
// before.
void guard_install_handler();

void guard_before_fork();
void guard_after_fork_in_parent();
void guard_after_fork_in_child();

}  // namespace freestone
