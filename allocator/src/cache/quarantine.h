// Room 8, cache: in the hardened build freed blocks of slabs wait before they may be handed out again.
//
// Each thread has a queue for each class of slabs: a batch of the latest frees, a pool and a ring. A full batch enters
// the pool, each block at a random place; what stood there enters the ring, whose oldest block leaves for the array of
// the class. So a freed address comes back after as many frees of its class as the ring has places, and a random number
// more, whatever other classes and threads do. A thread that ends leaves its queues with its cache to the next one; if
// none comes, whoever lets time pass frees their blocks once more.
//
// QUEUE-1  base <= top <= end, all null before the class is first used. [base, top), the pool and the ring hold
//          distinct blocks that are live nowhere else, at every instruction of a push (CACHE-2).
// QUEUE-2  Another thread that reads the base, what else it needs, and the same base again, has read one queue.
#pragma once

#include "cache/cache.h"

namespace freestone {

// Puts a block into its class's queue; into one that is full.
void put_in_queue(Cache& cache, SizeClass size_class, void* block);
void put_in_full_queue(Cache& cache, SizeClass size_class, void* block);
// Empties all queues into the slabs, or into those of the calling thread's cache `heir`.
void empty_quarantine(Cache& cache, Cache* heir);
// Of a class that the child of a fork cannot repair.
void forget_queue(Cache& cache, SizeClass size_class);
// Gives all cached blocks back, those in the queues and those in the arrays.
void flush_all(Cache& cache);

}  // namespace freestone
