// Room 7, slab: what the last word of a block of a slab says, in the hardened build.
//
//   live      | the program's bytes | 0, canary .. | trailer, lowest byte 0          |
//   free      | 0 ................................... | free word, lowest byte 1        |
//   changing  | anything ............................ | free word with all bits flipped |
//
// Of a free word 56 bits follow from the block's address and secrets of their own, so that they say nothing about those
// of the trailers (hardened/block_words.h). It differs from the changing word in each byte, so no overflow of a few
// bytes turns one of the three words into another. A block that was never taken since its memory came, or whose page
// went back since, ends in 0 instead of the free word.
//
// STATE-1  A block whose bit in the slab's bitmap is clear ends in a keyed word, but for blocks that the holder of the
//          slab's token has just taken; the child of a fork ends those of its parent's threads (repair_slab_in_child).
//          So whoever finds 0 there asks the bitmap and for the token.
#pragma once

#include "base/bits.h"
#include "base/chunks.h"
#include "base/compiler.h"
#include "config/options.h"
#include "platform/message.h"

namespace freestone {

inline constexpr u8 kFreeState = 1;  // the lowest byte

FREESTONE_INLINE u64 free_word(const void* block) {
  u64 word = (address_of(block) ^ block_secrets.free_key) * block_secrets.free_multiplier;
#if defined(__x86_64__)
  asm("movb %1, %b0" : "+q"(word) : "i"(kFreeState));  // compilers take two instructions
#else
  word = (word & ~low_mask(8)) | kFreeState;
#endif
  return word;
}
FREESTONE_INLINE u64 changing_word(const void* block) { return ~free_word(block); }

FREESTONE_INLINE u64* state_of(void* block, usize bytes) {
  return reinterpret_cast<u64*>(static_cast<char*>(block) + bytes - sizeof(u64));
}

// A block is taken from its slab, by the holder of the token: 0 becomes the free word. Anything else stays, and is seen
// when the block is handed out. One instruction reads and writes where there is one: a fresh page that is first read
// and then written faults twice.
FREESTONE_INLINE void set_taken(void* block, usize bytes) {
  u64* const state = state_of(block, bytes);
  const u64 word = free_word(block);
#if defined(__x86_64__)
  u64 expected = 0;
  asm volatile("cmpxchgq %2, %0" : "+m"(*state), "+a"(expected) : "r"(word) : "cc");
#else
  __atomic_fetch_or(state, 0, __ATOMIC_RELAXED);
  if (__atomic_load_n(state, __ATOMIC_RELAXED) == 0) __atomic_store_n(state, word, __ATOMIC_RELAXED);
#endif
}

// Ends the program unless a free block is zero before its last word, which is one of the two. With on_error:report it
// clears the block instead.
inline void expect_free_block(void* block, usize bytes) {
  if constexpr (!kMitigations.zero_on_free) return;
  const auto* const start = static_cast<const char*>(block);
  u64* const state = state_of(block, bytes);
  const u64 word = __atomic_load_n(state, __ATOMIC_RELAXED);
  const usize checked = bytes - sizeof(u64);
  const bool is_whole = is_clear(start, bytes - kChunkBytes) && load_word(start + bytes - kChunkBytes) == 0;
  if (FREESTONE_LIKELY(is_whole && (word == 0 || word == free_word(block)))) return;
  misuse("write after free", block, {.block_bytes = bytes, .wrong_byte = first_not_zero(start, checked)});
  std::memset(block, 0, bytes);
  *state = free_word(block);
}

}  // namespace freestone
