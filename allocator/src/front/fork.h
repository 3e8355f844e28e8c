// Room 9, front: fork.
//
// Nothing is waited for before a fork: the holder of a lock of ours may itself wait for one of libc's own locks, which
// fork takes after all handlers have run. Instead the child repairs what other threads were in the middle of. The
// bitmaps of the slabs need no lock and are whole at every instruction (SLAB-1 to SLAB-4, CACHE-2). The rooms below
// that have locks keep this rule:
//
// FORK-3  What a lock guards is changed in an order in which a child that finds it cut short between any two
//         instructions can repair it by counting anew. What the thread held in a register is lost, nothing is there
//         twice.
//
// So the order in which handlers of other libraries run does not matter, and a fork in a signal handler that
// interrupted malloc works: the locks that the interrupted code holds stay held until it goes on. A child whose
// handlers have not run, or never do, notices by itself (platform/child.h) when it meets a lock or makes a cache.
//
// The rooms above hold their locks across the fork. They are taken last and released first of all handlers, because
// ours are registered before anybody else's: see abi/atfork.cc. Where others stand before ours nonetheless, the forking
// thread passes (FORK-2).
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
