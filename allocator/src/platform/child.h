// Room 4, platform: notices that this process is the child of a fork, without a system call and without being told, and
// has the parent's half-done work repaired before it is used.
//
// A page that the kernel hands to children as zeros (MADV_WIPEONFORK) holds a word. If the word is gone, a fork has to
// be settled: the call that forked runs no handlers, or ours have not run yet. vfork shares memory and does not count.
// Without such pages, only the fork handlers tell a child what it is.
//
// FORK-4  Before a thread takes a lock, enters a bin or claims a slab, it has its process settled (settle_child). One
//         thread does so, the others wait for it. So in an unsettled child every lock, bin and token was held at the
//         fork, by threads that do not exist there or by the interrupted code. Threads that the child started before
//         only change their own caches.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"

namespace freestone {

// Repairs the child. Runs in one thread, while no other is past settle_child. The front defines it.
using ChildRepair = void (*)();
extern FREESTONE_HIDDEN const ChildRepair repair_child;

// The word has a page to itself, even where pages have 64 KiB.
#if defined(__x86_64__)
inline constexpr usize kSettledBytes = 4 * kKiB;
#else
inline constexpr usize kSettledBytes = 64 * kKiB;
#endif
// Twice as large, because an aligned variable would leave a hole between our other variables.
extern FREESTONE_HIDDEN char settled_room[2 * kSettledBytes];
// 0: not settled; kSettled; else the own_thread() of the thread that settles. Release and acquire: what the repair
// wrote.
inline constexpr usize kSettled = 1;
inline Atomic<usize>& settled_word() {
  return *reinterpret_cast<Atomic<usize>*>(round_up(address_of(settled_room), kSettledBytes));
}

// An address that belongs to the calling thread as long as it lives, in a child too.
inline usize own_thread() { return reinterpret_cast<usize>(__builtin_thread_pointer()); }

// At start.
void watch_process();
// Returns once the process is settled, or if the calling thread is at it. Any thread, with or without locks.
void settle_child_slow();
inline void settle_child() {
  if (FREESTONE_UNLIKELY(settled_word().load_acquire() != kSettled)) settle_child_slow();
}
// Debug: FORK-4, in the calling thread.
bool may_touch_shared();
// Called by the fork handlers in the forking thread, before the fork and in the child, which is settled at once.
void note_fork();
void settle_forked_child();
// How many forks lie between the first process and this one. Settles: who does counts, and publishes by the word.
extern FREESTONE_HIDDEN Atomic<u32> forks_seen;
inline u32 process_generation() {
  settle_child();
  return forks_seen.load_relaxed();
}

}  // namespace freestone
