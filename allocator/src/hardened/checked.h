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

#include "config/options.h"
#include "front/heap.h"
#include "policy/policy.h"

namespace freestone {

// The family of functions that a block came from and must go back through. Above kOriginFamilyBits: the binary
// logarithm of the alignment that the call named; 0 if it named none, or no more than every block has.
enum class Origin : u8 { c_call, new_object, new_array };
inline constexpr unsigned kOriginFamilyBits = 2;
constexpr Origin family_of(Origin origin) {
  return static_cast<Origin>(static_cast<u8>(origin) & low_mask(kOriginFamilyBits));
}
constexpr u8 alignment_of(Origin origin) { return static_cast<u8>(static_cast<u8>(origin) >> kOriginFamilyBits); }
// A value that is not an alignment matches none.
constexpr Origin with_alignment(Origin family, usize alignment) {
  constexpr unsigned kNone = 63;
  const unsigned logarithm = !is_power_of_two(alignment) ? kNone : alignment <= kGranule ? 0 : highest_bit(alignment);
  return static_cast<Origin>(static_cast<u8>(family) | logarithm << kOriginFamilyBits);
}
inline constexpr usize kUnknownBytes = ~usize{0};

namespace hardened {

// Draws the secrets.
void draw_secrets();

// malloc, free and what stands for them: paths.h.
void* allocate_zeroed_checked(usize bytes);
void* allocate_aligned_checked(usize bytes, usize alignment, Origin origin);
void* reallocate_checked(void* block, usize bytes);
usize usable_bytes_checked(const void* block);

// Freed blocks that wait: class runs that were cleared, and where spans have no guards also the sealed blocks, which
// stay charged, have no memory and count as taken by the rooms below.
struct SealedCounts {
  usize runs;
  usize run_bytes;
  usize class_blocks[kClassEnd];
  usize cleared_blocks[kClassEnd];
};
SealedCounts sealed_counts();
void release_all_sealed();
// How many bytes of a block above the slab classes can be read; its end may be a guard. 0 when it is not live.
usize readable_bytes(const void* block, usize block_bytes);

}  // namespace hardened
}  // namespace freestone
