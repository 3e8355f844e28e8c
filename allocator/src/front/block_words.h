// Room 9, front: what the hardened build writes into a block, and how it is checked. Words and loops only; no state but the secret.
//
//   live    | the program's bytes | canary | .................. | trailer: (live, origin, bytes asked for) ^ key, canary |
//   free    | 0 ................................................................................................... | 0  |
//
// The trailer is the last word of the block. The canary stands at the exact number of bytes asked for: two equal bytes, drawn when the
// process starts. They are the lowest of every trailer too, so a canary that reaches into the trailer, or that the trailer stands in place
// of, is compared like any other.
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
inline constexpr usize kEndBytes = 32;  // at each end of a block: what is checked when it is handed out

using Canary = u16;
inline constexpr unsigned kCanaryBits = 16;
// A trailer above its canary: the bytes asked for, the origin, and that it is live. All of it is compared, zero bits too.
inline constexpr unsigned kBytesBits = 15;
inline constexpr unsigned kOriginBits = 2;
inline constexpr u64 kLive = 0x1afe'a110;
static_assert(kSmallBytesMax <= u64{1} << kBytesBits && kLive << kOriginBits < u64{1} << 31, "one instruction compares it");

// The secret with which trailers are keyed; its lowest bytes are the canary. No canary is a zero or ASCII text.
constexpr u64 secret_of(u64 random) {
  const u64 byte = 0x80 | (random & 0x7f);
  return (random & ~low_mask(kCanaryBits)) | byte | byte << 8;
}

// Leaves the canary's bits alone.
FREESTONE_INLINE u64 key_of(const void* block, u64 secret) { return (address_of(block) ^ secret) * (0x9e37'79b9'7f4bULL << kCanaryBits); }

// What a trailer without its key says above the bytes: live, and of this origin.
constexpr u64 live_tag(Origin origin) { return (kLive << kOriginBits) | static_cast<u8>(origin); }
FREESTONE_INLINE u64 live_word(const void* block, usize bytes, Origin origin, u64 secret) {
  return ((((live_tag(origin) << kBytesBits) | bytes) << kCanaryBits) ^ key_of(block, secret)) | static_cast<Canary>(secret);
}
FREESTONE_INLINE u64 without_key(u64 trailer, const void* block, u64 secret) { return (trailer ^ key_of(block, secret)) >> kCanaryBits; }
FREESTONE_INLINE u64 tag_above_bytes(u64 plain) { return plain >> (kBytesBits + kOriginBits); }
FREESTONE_INLINE bool says_live(u64 plain) { return tag_above_bytes(plain) == kLive; }

struct Claim {
  usize bytes;
  Origin origin;
};
FREESTONE_INLINE Claim claim_of(u64 plain) {
  return {plain & low_mask(kBytesBits), static_cast<Origin>((plain >> kBytesBits) & low_mask(kOriginBits))};
}

FREESTONE_INLINE u64 load_word(const char* at) {
  u64 word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
FREESTONE_INLINE void store_word(char* at, u64 word) { std::memcpy(at, &word, sizeof word); }

FREESTONE_INLINE void store_canary(char* at, u64 secret) {
  const auto canary = static_cast<Canary>(secret);
  std::memcpy(at, &canary, sizeof canary);
}
FREESTONE_INLINE bool canary_is_whole(const char* at, u64 secret) {
  Canary found;
  std::memcpy(&found, at, sizeof found);
  return found == static_cast<Canary>(secret);
}

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

// A block of at most kClearInline bytes: three branches on the size and no loop.
inline constexpr usize kClearInline = kClearAlwaysBytes;
FREESTONE_INLINE void clear_chunks(char* at, usize count) {
  for (usize k = 0; k < count; ++k) clear_chunk(at + k * sizeof(Chunk));
}
FREESTONE_INLINE void clear_small(char* block, usize bytes) {
  // What lies between the two ends, in pieces that overlap: two of a fixed place and one that ends a chunk before the block does.
  constexpr usize kChunk = sizeof(Chunk);
  constexpr usize kFirst = kEndBytes + 5 * kChunk;
  constexpr usize kSecond = kFirst + 4 * kChunk;
  static_assert(kClearInline <= kSecond + 5 * kChunk);
  if (bytes > 2 * kEndBytes) {
    clear_chunk(block + kEndBytes);
    if (bytes > kEndBytes + 6 * kChunk) {
      clear_chunks(block + kEndBytes + kChunk, 4);
      if (bytes > kFirst + 5 * kChunk) clear_chunks(block + kFirst, 4);
    }
    clear_chunks(block + bytes - 5 * kChunk, 4);
  }
  clear_ends(block, bytes);
}

}  // namespace freestone::hardened
