// Room 8, cache: the slow paths of malloc and free, and what each of them finds due.
//
// An event is a refill, a flush or the free of a run. Some events ask the coarse clock whether a tick is due; the decay
// time has kTicksPerDecay ticks. A tick gives back what time made superfluous, in this order: parked caches, blocks
// that lay unused in transfer bins, runs that wait, free units, pages inside slabs. While more must go, a thread with
// few refills loses its arrays, which brings it back to a slow path.
#pragma once

#include "cache/cache.h"

namespace freestone {

// Pops a block of the class after refilling or lowering the mark; null when memory is out.
void* pop_slow(Cache& cache, SizeClass size_class);
// Pushes a block of the class after making room.
void push_slow(Cache& cache, SizeClass size_class, void* block);
// Hardened build: puts a block into its class's queue, which is full.
void put_in_quarantine_full(Cache& cache, SizeClass size_class, void* block);

// Take and return a block for a thread that is ending or cannot get a cache. `random` goes on from call to call.
void* take_one(SizeClass size_class, u64& random);
void return_one(SizeClass size_class, void* block);

// `cache` is the calling thread's; null if it has none. Any thread may call it that holds no lock and is at work on no
// class.
void tick(Cache* cache);
// Gives back memory inside slabs that nobody needs (purge_cold_pages). When few blocks are left, empties the cache
// first: each block in it may keep a page, and an array sized for the larger heap would keep one page for each. `due`:
// a tick, or a look after so many events. `cache` is null for a thread that has none.
void give_back_cold(Cache* cache, bool due);

}  // namespace freestone
