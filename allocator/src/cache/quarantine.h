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

#include "cache/cache.h"

namespace freestone {

// Puts a block into its class's queue, which is full.
void put_in_full_queue(Cache& cache, SizeClass size_class, void* block);
// Halves the queues that were not full since somebody last looked for idle ones.
void shrink_idle_queues(Cache& cache);
// Empties all queues into the slabs.
void empty_quarantine(Cache& cache);
// Of a class that the child of a fork cannot repair.
void forget_queue(Cache& cache, SizeClass size_class);
// Gives all cached blocks back, those in the queues and those in the arrays.
void flush_all(Cache& cache);

}  // namespace freestone
