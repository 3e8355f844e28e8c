// Room 9, front: what the hardened build writes into a block, and how it is checked. Words and loops only; no state but the secret.
//
//   live    | the program's bytes | pattern ............ | trailer: (live, origin, bytes asked for) ^ key |
//   free    | 0 ................................................................................. | 0      |
//
// The trailer is the last word of the block. The pattern begins at the exact number of bytes asked for.
//
// WORDS-1  A block that is free, in a cache or in a slab, has 0 as its trailer; with zero_on_free its first and last kEndBytes are 0 too.
#pragma once

#include <cstring>

#include "base/bits.h"
#include "base/compiler.h"
#include "front/hardened.h"
#include "slab/size_class.h"

namespace freestone::hardened {

inline constexpr usize kTrailerBytes = sizeof(u64);
static_assert(!kMitigations.trailer || kTrailerBytes == kHeldBackBytes);
inline constexpr u64 kLive = 0x5afe'a110;  // upper half of a trailer that says live; the lower half holds origin and bytes
inline constexpr unsigned kOriginShift = 24;
inline constexpr u8 kPattern = 0xb5;
inline constexpr u64 kPatternWord = 0x0101'0101'0101'0101ULL * kPattern;
inline constexpr usize kEndBytes = 32;  // at each end of a block: what is checked when it is handed out

FREESTONE_INLINE u64 key_of(const void* block) { return (address_of(block) ^ block_secret) * 0x9e3779b97f4a7c15ULL; }

// What a trailer without its key says, less the bytes: live, and of this origin.
constexpr u64 live_tag(Origin origin) { return (kLive << (32 - kOriginShift)) | static_cast<u8>(origin); }
FREESTONE_INLINE u64 live_word(const void* block, usize bytes, Origin origin) { return ((live_tag(origin) << kOriginShift) | bytes) ^ key_of(block); }
FREESTONE_INLINE bool says_live(u64 trailer, const void* block) { return (trailer ^ key_of(block)) >> 32 == kLive; }

struct Claim {
  usize bytes;
  Origin origin;
};
FREESTONE_INLINE Claim claim_of(u64 plain) { return {plain & low_mask(kOriginShift), static_cast<Origin>((plain >> kOriginShift) & 0xff)}; }

FREESTONE_INLINE u64 load_word(const char* at) {
  u64 word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
FREESTONE_INLINE void store_word(char* at, u64 word) { std::memcpy(at, &word, sizeof word); }

// 16 bytes at a time, by instructions rather than by a call: most blocks are small. Blocks are multiples of 16 at multiples of 16.
using Chunk = u64 __attribute__((vector_size(16)));
FREESTONE_INLINE Chunk load_chunk(const char* at) {
  Chunk chunk;
  std::memcpy(&chunk, at, sizeof chunk);
  return chunk;
}
FREESTONE_INLINE void clear_chunk(char* at) {
  const Chunk zero = {};
  std::memcpy(at, &zero, sizeof zero);
}

// Whether the first and the last kEndBytes of a block are 0. No loop: a block of any size takes the same path.
FREESTONE_INLINE bool ends_are_clear(const char* block, usize bytes) {
  const usize second = min_of<usize>(sizeof(Chunk), bytes - sizeof(Chunk));
  const usize third = max_of<usize>(bytes, kEndBytes) - kEndBytes;
  const Chunk any = load_chunk(block) | load_chunk(block + second) | load_chunk(block + third) | load_chunk(block + bytes - sizeof(Chunk));
  return (any[0] | any[1]) == 0;
}

FREESTONE_INLINE void clear_ends(char* block, usize bytes) {
  clear_chunk(block);
  clear_chunk(block + min_of<usize>(sizeof(Chunk), bytes - sizeof(Chunk)));
  clear_chunk(block + max_of<usize>(bytes, kEndBytes) - kEndBytes);
  clear_chunk(block + bytes - sizeof(Chunk));
}

// A block of at most kClearInline bytes. Few branches, so that blocks of mixed sizes do not mispredict each time.
inline constexpr usize kClearInline = 256;
FREESTONE_INLINE void clear_small(char* block, usize bytes) {
  if (bytes > 2 * kEndBytes) {
    usize from = kEndBytes;
    if (bytes > 4 * kEndBytes) {
      for (; from + 6 * sizeof(Chunk) < bytes; from += 4 * sizeof(Chunk)) {
        for (usize k = 0; k < 4; ++k) clear_chunk(block + from + k * sizeof(Chunk));
      }
    }
    // At most 64 bytes are left before the last kEndBytes: these four reach them from the other side.
    const usize to = bytes - kEndBytes - 4 * sizeof(Chunk);
    char* const at = block + (bytes - kEndBytes < 4 * sizeof(Chunk) ? 0 : to);
    for (usize k = 0; k < 4; ++k) clear_chunk(at + k * sizeof(Chunk));
  }
  clear_ends(block, bytes);
}

// Where the pattern of a block is compared: its first word and its last, which is one word when the gap is less than two. In a gap of
// less than a word the lower bytes belong to the program.
struct Gap {
  usize first;  // offset of the first word
  u64 mask;     // the bytes of it that are pattern
};
FREESTONE_INLINE Gap gap_behind(usize bytes, usize trailer) {
  const usize last = trailer - sizeof(u64);
  const usize first = min_of(bytes, last);
  const auto bits = static_cast<unsigned>((bytes - first) * 4);  // 0 to 32: shifted twice, as a shift by 64 is none
  return {first, (~u64{0} << bits) << bits};
}
// In a block that holds nothing yet.
FREESTONE_INLINE void lay_pattern(char* block, usize bytes, usize trailer) {
  const Gap gap = gap_behind(bytes, trailer);
  store_word(block + gap.first, kPatternWord & gap.mask);
  store_word(block + trailer - sizeof(u64), kPatternWord & gap.mask);
}
FREESTONE_INLINE bool pattern_is_whole(const char* block, usize bytes, usize trailer) {
  const Gap gap = gap_behind(bytes, trailer);
  return (((load_word(block + gap.first) ^ kPatternWord) | (load_word(block + trailer - sizeof(u64)) ^ kPatternWord)) & gap.mask) == 0;
}

}  // namespace freestone::hardened
