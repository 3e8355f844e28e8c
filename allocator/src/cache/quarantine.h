// Room 8, cache: in the hardened build freed blocks of slabs wait before they may be handed out again.
//
// Each thread has a queue for each class of slabs. When it is full, it doubles while that is allowed; else the older
// half leaves, in random order, for the array of the class, whose oldest blocks make room for it. So a freed address
// comes back after as many frees of its class as half a queue holds, at least.
//
// QUEUE-1  base <= top <= end, all null before the class is first used. [base, top) holds distinct blocks that are live
//          nowhere else, at every instruction of a push (CACHE-2).
// QUEUE-2  The queues of a process hold places for at most kQuarantineFreeBytes or a share of the heap, whichever is
//          more, and for the first places of each queue. One queue has places for at most kQuarantineClassBytes.
#pragma once

#include "base/compiler.h"
#include "config/size_class.h"
#include "policy/policy.h"

namespace freestone {

struct Cache;

struct Queue {
  void** base = nullptr;
  void** top = nullptr;
  void** end = nullptr;
  bool was_full = false;  // since somebody last looked for idle queues

  unsigned count() const { return static_cast<unsigned>(top - base); }
  unsigned capacity() const { return static_cast<unsigned>(end - base); }
};

template <bool Enabled>
struct Quarantine {
  Queue queues[kLastSmallClass + 1];
  u8 last_asked = 0;  // the class last asked for places that another needs more

  FREESTONE_INLINE Queue& of(SizeClass size_class) { return queues[size_class]; }
  u8& hand() { return last_asked; }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) visit(c, queues[c]);
  }
};
template <>
struct Quarantine<false> {
  static Queue& of(SizeClass) { __builtin_unreachable(); }
  static u8& hand() { __builtin_unreachable(); }
  template <typename Visit>
  void for_each(Visit) const {}
};

// Out of line: puts a block into its class's queue, which is full.
void put_in_quarantine_full(Cache& cache, SizeClass size_class, void* block);
// Halves the queues that were not full since somebody last looked for idle ones.
void shrink_idle_queues(Cache& cache);
// Empties all queues into the slabs.
void empty_quarantine(Cache& cache);
// Of a class that the child of a fork cannot repair.
void forget_queue(Cache& cache, SizeClass size_class);

}  // namespace freestone
