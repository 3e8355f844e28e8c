// Room 9, front: fork.
//
// The forking thread waits for nothing before a fork: the holder of one of our locks may itself wait for a lock of
// libc, which fork takes after all handlers have run. Instead, the child repairs what other threads left half done. The
// bitmaps of the slabs need no lock and are whole at every instruction (SLAB-1 to SLAB-4, CACHE-2). The rooms below
// that have locks keep this rule:
//
// FORK-3  A lock's holder changes what it guards in such an order that a child that finds it cut short between any two
//         instructions can repair it by counting again. What the thread held in a register is lost; nothing exists
//         twice.
//
// So the order of other libraries' handlers does not matter, and a signal handler that interrupted malloc may fork: the
// interrupted code keeps its locks until it goes on. A child whose handlers have not run yet, or never run, notices the
// fork by itself (platform/child.h) when it meets a lock or makes a cache.
//
// The rooms above hold their locks across the fork. They are taken last and released first of all handlers, because
// ours are registered before anybody else's: see abi/atfork.cc. If other handlers come before ours nevertheless, the
// forking thread may take the locks that are held for its fork (FORK-2).
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
