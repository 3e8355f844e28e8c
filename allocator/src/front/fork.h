// Room 9, front: fork.
//
// Before a fork the forking thread waits for no lock of the core (rooms 5 to 9): its holder may itself wait for a lock
// of libc, which fork takes after all handlers have run. Instead, the child repairs what other threads left half done,
// before anybody can meet it (FORK-4 in platform/child.h). If no handler ran, any of its threads may notice that, late.
// The bitmaps of the slabs need no lock and are whole at every instruction (SLAB-1 to SLAB-4, CACHE-2). The rooms below
// that have locks keep these rules:
//
// FORK-3  A lock's holder changes what it guards in such an order that a child that finds it cut short between any two
//         instructions can repair it by counting again. What the thread held in a register is lost; nothing exists
//         twice.
// FORK-5  What a system call is about to change is written down first, so that the child that finds the call cut short
//         finishes or undoes it. So it never takes for somebody else's what its own parent was about to map.
//
// So the order of other libraries' handlers does not matter, and a signal handler that interrupted malloc may fork: the
// interrupted code keeps its locks until it goes on, and before that the child may not start threads.
//
// The child keeps its own cache. Those of the threads that it does not have are nobody's; they are emptied later,
// beside its other threads, so a child which only calls exec does not pay for it (drain_orphans in cache/lifetime.h).
//
// The rooms above hold their locks across the fork, and wait for whoever has them; who has one of them takes no lock of
// libc. They are taken last and released first of all handlers, because ours are registered before anybody else's: see
// abi/atfork.cc. If other handlers come before ours nevertheless, the forking thread may take the locks that are held
// for its fork (FORK-2). In a child without handlers these rooms repair what they guard, as those below do.
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
