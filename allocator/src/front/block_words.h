// Room 9, front: what the hardened build writes into a block, and how it is checked. Words and loops only; no state but the secrets.
//
//   live      | the program's bytes | 0, canary .. | trailer  |
//   changing  | anything ............................ | 1       |
//   free      | 0 ................................... | 0       |
//
// The trailer is the last word of the block: 33 bits that follow from the address, the secrets and the rest of the word, then the origin and
// the bytes asked for, then a zero byte. What lies between the bytes asked for and the trailer belongs to nobody: a zero, where a string that
// lost its end stops, and canary bytes. Where there is nothing between, the zero is the trailer's lowest byte.
//
// WORDS-1  At every instant that another thread can look: where the trailer is 0, the block is 0 (with zero_on_free); where it is neither
//          0 nor kChanging, all behind the bytes asked for is as drawn. So kChanging is written first and the new trailer last.
#pragma once

#include "base/bits.h"
#include "base/chunks.h"
#include "base/compiler.h"
#include "front/hardened.h"
#include "slab/size_class.h"

namespace freestone::hardened {

inline constexpr usize kTrailerBytes = sizeof(u64);
static_assert(!kMitigations.trailer || kTrailerBytes == kHeldBackBytes);

inline constexpr u64 kChanging = 1;
inline constexpr unsigned kBytesShift = 8;
inline constexpr unsigned kBytesBits = 15;
inline constexpr unsigned kOriginShift = kBytesShift + kBytesBits;
inline constexpr unsigned kOriginBits = 8;
inline constexpr unsigned kPlainBits = kOriginShift + kOriginBits;
inline constexpr u64 kPlainMask = low_mask(kPlainBits) & ~low_mask(kBytesShift);
static_assert(kSmallBytesMax <= u64{1} << kBytesBits);
inline constexpr u64 kAlignmentMask = low_mask(kPlainBits) & ~low_mask(kOriginShift + kOriginFamilyBits);

// What a trailer says in plain: the bytes asked for and the origin.
constexpr u64 plain_word(usize bytes, Origin origin) { return u64{bytes} << kBytesShift | u64{static_cast<u8>(origin)} << kOriginShift; }
FREESTONE_INLINE u64 trailer_word(const void* block, u64 plain) {
  // Addresses of the heap differ below this shift: no two blocks' trailers follow from each other.
  constexpr unsigned kAboveAddresses = 32;
  const u64 mixed = (address_of(block) ^ block_secrets.key ^ (plain << kAboveAddresses)) * block_secrets.multiplier;
  return (mixed & ~low_mask(kPlainBits)) | plain;
}

struct Claim {
  usize bytes;
  Origin origin;
};
FREESTONE_INLINE Claim claim_of(u64 trailer) {
  return {(trailer >> kBytesShift) & low_mask(kBytesBits), static_cast<Origin>((trailer >> kOriginShift) & low_mask(kOriginBits))};
}

// Between the bytes asked for and the trailer lies the gap. Of it the last kNearGap bytes are written and compared by two pieces of fixed
// place; the table of what stands there is read at the gap, so that one row serves all.
inline constexpr usize kNearGap = 24;
inline constexpr usize kNearBytes = kNearGap + kTrailerBytes;  // from the end of the block
static_assert(!kMitigations.trailer || kNearBytes <= kBlockBytesMin);
inline constexpr usize kFarRow = kNearGap + 1;  // the gap is longer: all of the last bytes are canary
inline constexpr usize kFreeRow = 0;            // all zero

struct GapMask {
  u8 bytes[kGapTableBytes] = {};
  constexpr GapMask() {
    for (usize k = kNearGap; k < kGapTableBytes; ++k) bytes[k] = 0xff;
  }
};
inline constexpr GapMask kGapMask;
static_assert(kFarRow + kNearGap <= kGapTableBytes);

// What differs in the last bytes before the trailer of a block that ends there from what `row` says, where `mask` looks.
FREESTONE_INLINE u64 near_damage(const char* end, usize row, usize mask) {
  const u8* const expected = block_secrets.gap + row;
  const u8* const looked_at = kGapMask.bytes + mask;
  const Chunk first = (load_chunk(end - kNearBytes) ^ load_chunk(expected)) & load_chunk(looked_at);
  const u64 second = (load_word(end - 2 * sizeof(u64)) ^ load_word(expected + kChunkBytes)) & load_word(looked_at + kChunkBytes);
  return first[0] | first[1] | second;
}
// Of a block that holds nothing.
FREESTONE_INLINE void store_near(char* end, usize row) {
  store_chunk(end - kNearBytes, load_chunk(block_secrets.gap + row));
  store_word(end - 2 * sizeof(u64), load_word(block_secrets.gap + row + kChunkBytes));
}
FREESTONE_INLINE usize row_of(usize gap) { return min_of(gap, kFarRow); }

// A zero and canary bytes in [from, end), which may be empty.
inline void store_gap(char* from, char* end) {
  if (from >= end) return;
  *from = 0;
  std::memset(from + 1, block_secrets.canary, static_cast<usize>(end - from - 1));
}
inline bool canaries_are_whole(const char* from, const char* end) {
  const u64 eight = u64{block_secrets.canary} * 0x0101'0101'0101'0101;
  u64 any = 0;
  for (; from < end && address_of(from) % sizeof(u64) != 0; ++from) any |= u64{static_cast<u8>(*from)} ^ block_secrets.canary;
  for (; end - from >= static_cast<std::ptrdiff_t>(sizeof eight); from += sizeof eight) any |= load_word(from) ^ eight;
  for (; from < end; ++from) any |= u64{static_cast<u8>(*from)} ^ block_secrets.canary;
  return any == 0;
}
inline bool gap_is_whole(const char* from, const char* end) { return from >= end || (*from == 0 && canaries_are_whole(from + 1, end)); }

// WORDS-1: what is written before stays before.
FREESTONE_INLINE void in_order() { __atomic_thread_fence(__ATOMIC_RELEASE); }
FREESTONE_INLINE u64 load_trailer(const void* trailer) { return __atomic_load_n(static_cast<const u64*>(trailer), __ATOMIC_RELAXED); }
FREESTONE_INLINE void store_trailer(void* trailer, u64 word) { __atomic_store_n(static_cast<u64*>(trailer), word, __ATOMIC_RELAXED); }
FREESTONE_INLINE void begin_change(void* trailer) {
  store_trailer(trailer, kChanging);
  in_order();
}

// A block of at most this size is cleared and looked at in line: three branches on the size and no loop.
inline constexpr usize kInlineBytes = 256;
inline constexpr usize kSide = 2 * kChunkBytes;  // at each end
static_assert(!kMitigations.trailer || kSide <= kBlockBytesMin);
inline constexpr usize kFirstMiddle = kSide + 5 * kChunkBytes;
static_assert(kInlineBytes <= kFirstMiddle + 9 * kChunkBytes);

// Visits every chunk of the block but the last, some twice, by offset.
template <typename Visit>
FREESTONE_INLINE void for_chunks(usize bytes, Visit visit) {
  const auto four = [&](usize from) {
    for (usize k = 0; k < 4; ++k) visit(from + k * kChunkBytes);
  };
  if (bytes > 2 * kSide) {
    visit(kSide);
    if (bytes > kSide + 6 * kChunkBytes) {
      four(kSide + kChunkBytes);
      if (bytes > kFirstMiddle + 5 * kChunkBytes) four(kFirstMiddle);
    }
    four(bytes - 5 * kChunkBytes);
  }
  visit(0);
  visit(kChunkBytes);
  visit(bytes - kSide);
}

// Frees the block's bytes: its trailer says that it changes until all of it is 0.
FREESTONE_INLINE void clear_inline(char* block, usize bytes) {
  begin_change(block + bytes - kTrailerBytes);
  for_chunks(bytes, [&](usize offset) { clear_chunk(block + offset); });
  in_order();
  clear_chunk(block + bytes - kChunkBytes);
}
inline void clear_block(char* block, usize bytes) {
  begin_change(block + bytes - kTrailerBytes);
  std::memset(block, 0, bytes - kChunkBytes);
  in_order();
  clear_chunk(block + bytes - kChunkBytes);
}
FREESTONE_INLINE bool is_clear_inline(const char* block, usize bytes) {
  Chunk any = chunk_at(block + bytes - kChunkBytes);
  for_chunks(bytes, [&](usize offset) { any |= chunk_at(block + offset); });
  return is_zero(any);
}

}  // namespace freestone::hardened
