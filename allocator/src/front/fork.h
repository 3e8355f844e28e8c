// Room 9, front: fork.
//
// Before a fork the forking thread waits for no lock of the core (rooms 5 to 9): its holder may wait for a lock of
// libc, which fork takes after all handlers. Instead, the child repairs the half-done work of other threads before it
// is used (FORK-4 in platform/child.h). So the order of other libraries' handlers does not matter, and a signal handler
// that interrupted malloc may fork: the interrupted code keeps its locks, and before it goes on the child may start no
// thread. The bitmaps of the slabs need no lock (SLAB-1 to SLAB-4, CACHE-2).
//
// FORK-3  A lock's holder changes the guarded data in an order that lets a child, cut off between any two instructions,
//         repair it by counting again. A value in a register is lost; nothing exists twice.
// FORK-5  A system call's change is written down first, so the child finishes or undoes a call that the fork cut off,
//         and never takes its parent's new mapping for a foreign one.
//
// The child keeps its own cache; the other threads' caches are emptied later, beside its other threads, so a child that
// only calls exec does not pay (drain_orphans in cache/lifetime.h). The rooms above wait for their locks, whose holders
// take no lock of libc, and hold them across the fork. Ours are taken last and released first of all handlers
// (abi/atfork.cc); if other handlers come before ours, the forking thread may take the locks held for its fork
// (FORK-2). In a child without handlers these rooms repair their data like those below.
#pragma once

namespace freestone {

// What a room above does around a fork, in the forking thread.
struct ForkHooks {
  void (*before)();
  void (*in_parent)();
  void (*in_child)();
};
// In the order in which `before` runs.
extern const ForkHooks abi_fork_hooks;
extern const ForkHooks upkeep_fork_hooks;
extern const ForkHooks heaps_fork_hooks;
extern const ForkHooks sampling_fork_hooks;

// Registers the handlers with libc, once.
void watch_forks();

// lifecycle.cc
void reset_start_in_child();

}  // namespace freestone
