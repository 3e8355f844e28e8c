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

// Whether the first and the last kEndBytes of a block are 0. No branch: a block of any size takes the same path.
static_assert(!kMitigations.trailer || (kEndBytes == 2 * sizeof(Chunk) && kEndBytes <= kBlockBytesMin));
FREESTONE_INLINE bool ends_are_clear(const char* block, usize bytes) {
  const char* const end = block + bytes;
  const Chunk any = load_chunk(block) | load_chunk(block + sizeof(Chunk)) | load_chunk(end - kEndBytes) | load_chunk(end - sizeof(Chunk));
  return (any[0] | any[1]) == 0;
}

FREESTONE_INLINE void clear_ends(char* block, usize bytes) {
  char* const end = block + bytes;
  clear_chunk(block);
  clear_chunk(block + sizeof(Chunk));
  clear_chunk(end - kEndBytes);
  clear_chunk(end - sizeof(Chunk));
}

// A block of at most kClearInline bytes. Two branches on the size and no loop, so that blocks of mixed sizes seldom mispredict.
inline constexpr usize kClearInline = kClearAlwaysBytes;
FREESTONE_INLINE void clear_four_chunks(char* at) {
  for (usize k = 0; k < 4; ++k) clear_chunk(at + k * sizeof(Chunk));
}
FREESTONE_INLINE void clear_small(char* block, usize bytes) {
  constexpr usize kFour = 4 * sizeof(Chunk);
  static_assert(kClearInline <= 3 * kFour + 2 * kEndBytes);
  if (bytes > kFour) {
    // What lies between the two ends: at most 64 bytes, or at most 192, in pieces that overlap.
    const usize last = max_of<usize>(bytes, kEndBytes + kFour) - kEndBytes - kFour;
    if (bytes > 2 * kFour) {
      clear_four_chunks(block + kEndBytes);
      clear_four_chunks(block + min_of(kEndBytes + kFour, last));
    }
    clear_four_chunks(block + last);
  }
  clear_ends(block, bytes);
}

// Where the pattern of a block is compared: its first word and its last, which is one word when the gap is less than two. In a gap of
// less than a word the lower bytes belong to the program.
struct PatternWord {
  u64 word = 0;
  u64 mask = 0;  // the bytes that are pattern
};
struct PatternWords {
  PatternWord of[sizeof(u64) + 1];  // by the number of lower bytes that belong to the program
  constexpr PatternWords() : of() {
    for (unsigned k = 0; k < sizeof(u64); ++k) of[k] = {kPatternWord & ~low_mask(k * 8), ~low_mask(k * 8)};
  }
};
inline constexpr PatternWords kPatternWords;

struct Gap {
  usize first;    // offset of the first word
  unsigned kept;  // the bytes of it that are the program's
};
FREESTONE_INLINE Gap gap_behind(usize bytes, usize trailer) {
  const usize first = min_of(bytes, trailer - sizeof(u64));
  return {first, static_cast<unsigned>(bytes - first)};
}
// In a block that holds nothing yet.
FREESTONE_INLINE void lay_pattern(char* block, usize bytes, usize trailer) {
  const Gap gap = gap_behind(bytes, trailer);
  const u64 word = kPatternWords.of[gap.kept].word;
  store_word(block + gap.first, word);
  store_word(block + trailer - sizeof(u64), word);
}
FREESTONE_INLINE bool pattern_is_whole(const char* block, usize bytes, usize trailer) {
  const Gap gap = gap_behind(bytes, trailer);
  const PatternWord& pattern = kPatternWords.of[gap.kept];
  return (((load_word(block + gap.first) ^ pattern.word) | (load_word(block + trailer - sizeof(u64)) ^ pattern.word)) & pattern.mask) == 0;
}

}  // namespace freestone::hardened
