// Room 10, hardened: the checked entry points of the hardened build, around the same heap.
//
// A block of a slab class ends in a trailer, a word that only this process can write: it says how many bytes were asked
// for and by which family of functions. What lies between these bytes and the trailer is a canary. A free block is
// zero but for its last word, which says that it is free.
//
//   malloc   all of the block must be free and 0; write canary and trailer
//   free     exact start of a block; trailer and canary whole; size and origin as given; the end of the block before
//            whole, or 0 when that is free; clear; into the quarantine
//
// Blocks above the slab classes keep what was asked for in their record; behind their bytes stand a keyed word and a
// canary.
//
// HARD-1  The last word of every block of every slab is that of a live, a free or a changing block, or 0 (STATE-1 in
//         slab/state_word.h), at every instant that another thread can look (WORDS-1 in block_words.h).
// HARD-2  Free memory below the size that is always cleared is zero wherever it waits: in the quarantine, a cache, a
//         slab or the free spans.
#pragma once

#include "front/heap.h"
#include "hardened/origin.h"

namespace freestone {

namespace hardened {

// Draws the secrets.
void draw_secrets();

// malloc, free and what stands for them: paths.h.
void* allocate_zeroed_checked(usize bytes);
void* allocate_aligned_checked(usize bytes, usize alignment, Origin origin);
// From the second partition; null if the first must serve: the block is no slab's, the alignment is not one, or the
// allocator has not started.
void* allocate_in_partition(usize bytes, usize alignment, Origin origin);
// In the partition of `block`.
void* reallocate_checked(void* block, usize bytes);
usize usable_bytes_checked(const void* block);

}  // namespace hardened
}  // namespace freestone
