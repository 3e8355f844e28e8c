// Room 8, cache: the fast build checks a program's first allocations.
//
// While the process has one cache, all frees and its first kAllocations allocations take the slow path, which remembers
// blocks in a small table: where the bytes of a live block end that glibc would let the program use, or that a block is
// free. Nothing is written or checked elsewhere, since a program that runs under glibc must run here.
//
//   live    | the program's bytes, as far as glibc's block goes | canary | anything | canary, if in the same page |
//   free    | 16 or 32 bytes of 0, where glibc has links | what it was, with the canaries |
//
// A remembered block is checked when it or a neighbour is freed, when it is resized, handed out or flushed, when
// another takes its place in the table, at malloc_trim and at exit.
//
// EARLY-1  While a cache is watched, low = top = high in each of its slab classes. So the slow path sees every pop and
//          push, no entry describes an earlier owner of the block, and a block that an entry calls free is in the
//          cache.
//
// An entry is taken out before the block changes and put in afterwards, so entries are true at every instruction.
#pragma once

#include "base/chunks.h"
#include "cache/cache.h"

namespace freestone::early {

inline constexpr u16 kAllocations = 512;
inline constexpr usize kClearedMax = 4 * kKiB;  // the program may have protected pages of a larger block

extern FREESTONE_HIDDEN Atomic<Cache*> watched;  // relaxed: set by its owner; other threads only clear it

FREESTONE_INLINE bool watches(const Cache& cache) {
  if constexpr (kMitigations.any()) return false;
  return FREESTONE_UNLIKELY(watched.load_relaxed() == &cache);
}

// Watches the calling thread's cache, once in a process.
void begin(Cache& cache);
// Forgets everything. Any thread.
void end();
// Closes a class to the fast paths (EARLY-1).
inline void close(Cache& cache, SizeClass size_class) {
  cache.low[size_class] = cache.high[size_class] = cache.top[size_class];
}

// From here on, `cache` is the watched one and the class is a slab's.

// A cached block for `bytes`; null if there is none.
void* take_cached(Cache& cache, SizeClass size_class, usize bytes);
// A block was handed out for `bytes`.
void note_taken(Cache& cache, SizeClass size_class, void* block, usize bytes);
// A block is about to be cached. Ends the program if it or a neighbour is damaged, or if it is free already.
// False: it was not remembered.
bool note_freed(SizeClass size_class, void* block);
// The program may use `bytes` of a live block now.
void note_resized(SizeClass size_class, void* block, usize bytes);
// Blocks are about to leave the cache.
void note_leaving(void* const* blocks, unsigned count);
// Checks all remembered blocks.
void check_all();

}  // namespace freestone::early
