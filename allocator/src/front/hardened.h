// Room 9, front: the checked entry points of the hardened build, around the same heap.
//
// A block of a slab class ends in a trailer, a word that only this process can write: keyed by the block's address, it says "live, N bytes
// asked for, of this origin", or it is 0: free. Behind the N bytes stands a canary.
//
//   malloc   the ends of the block must be 0; write canary and trailer
//   free     exact start of a block; trailer must say live; canary whole; size and origin as given; the block before has a trailer that
//            makes sense; clear; into the quarantine
//
// Blocks above the slab classes keep what was asked for in their record and end in an eight-byte mark right behind it.
//
// HARD-1  The trailer of every block of every slab says live or is 0 above its canary, at every instant that another thread can look.
#pragma once

#include "front/heap.h"
#include "policy/policy.h"

namespace freestone {

// Which family of functions a block came from and goes back through.
enum class Origin : u8 { c_call, new_object, new_array };
inline constexpr usize kUnknownBytes = ~usize{0};

// The key of the trailers; drawn before the first block is handed out.
extern FREESTONE_HIDDEN u64 block_secret;

namespace hardened {

// malloc, free and what stands for them: hardened_paths.h.
void* allocate_zeroed(usize bytes);
void* allocate_aligned(usize bytes, usize alignment, Origin origin);
void* reallocate(void* block, usize bytes);
usize usable_bytes(const void* block);

// Large blocks that wait sealed: free, but not yet the heap's.
struct SealedCounts {
  usize runs;
  usize run_bytes;
  usize class_blocks[kClassEnd];
};
SealedCounts sealed_counts();
void release_all_sealed();
// The bytes that may be read of a block above the slab classes, of which the end may be a guard; 0 when it is not live.
usize readable_bytes(const void* block, usize block_bytes);

}  // namespace hardened
}  // namespace freestone
