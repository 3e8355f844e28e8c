// Room 10, hardened: what the hardened build writes into a block, and how it is checked. Words and loops only; no state
// but the secrets.
//
// slab/state_word.h draws a live, a free and a changing block.
//
// The trailer is the last word of the block: 33 bits that follow from the address, the secrets and the rest of the
// word, then the origin (7) and the bytes asked for (16), then a zero byte. The gap between the bytes asked for and the
// trailer holds a zero, which stops a string that lost its end, and then canary bytes. Where there is no gap, the
// trailer's lowest byte is that zero.
//
// WORDS-1  At every instant that another thread can look: where the last word is 0 or the free word, the block is 0
//          (with zero_on_free); where it is a trailer, all behind the bytes asked for is as drawn. So the changing word
//          is written first and the new one last.
#pragma once

#include "base/bits.h"
#include "base/check.h"
#include "base/chunks.h"
#include "base/compiler.h"
#include "config/size_class.h"
#include "front/heap.h"
#include "hardened/origin.h"
#include "platform/message.h"
#include "slab/state_word.h"

namespace freestone::hardened {

inline constexpr usize kTrailerBytes = sizeof(u64);
static_assert(!kMitigations.trailer || kTrailerBytes == kHeldBackBytes);

// The bytes asked for fill two whole bytes of the word, so one load reads them.
inline constexpr unsigned kBytesShift = 8;
inline constexpr unsigned kBytesBits = 16;
inline constexpr unsigned kOriginShift = kBytesShift + kBytesBits;
inline constexpr unsigned kOriginBits = 7;
inline constexpr unsigned kPlainBits = kOriginShift + kOriginBits;
static_assert(kSmallBytesMax < u64{1} << kBytesBits &&
              highest_bit(kSmallBytesMax) < 1U << (kOriginBits - kOriginFamilyBits));

// The part of a trailer that anybody can read: the bytes asked for and the origin.
constexpr u64 plain_word(usize bytes, Origin origin) {
  return u64{bytes} << kBytesShift | u64{static_cast<u8>(origin) & low_mask(kOriginBits)} << kOriginShift;
}
// From memory: the secret in a register would cost the callers a frame.
FREESTONE_INLINE void times_secret(u64& number) {
#if defined(__x86_64__)
  asm("imulq %1, %0" : "+r"(number) : "m"(block_secrets.multiplier) : "cc");
#else
  number *= block_secrets.multiplier;
#endif
}
// Its check bits, above kPlainBits; of `word` only the lower bits count. A product alone would tell what a bit of the
// address adds to it: eight words that were read would foretell all others. The second one hides that.
FREESTONE_INLINE u64 check_product(const void* block, u64 word) {
  // The plain part lies above all bits in which addresses of the heap differ.
  constexpr unsigned kAbovePlain = 64 - kPlainBits;
  u64 product = address_of(block) ^ block_secrets.key ^ (word << kAbovePlain);
  times_secret(product);
  product ^= product >> 32;
  times_secret(product);
  return product;
}
FREESTONE_INLINE u64 trailer_word(const void* block, u64 plain) {
  return (check_product(block, plain) & ~low_mask(kPlainBits)) | plain;
}
// The check bits of a trailer that are wrong; 0: none. The caller checks its lowest byte, which must be zero.
FREESTONE_INLINE u64 forged_bits(const void* block, u64 word) {
  return (word ^ check_product(block, word)) >> kPlainBits;
}
inline bool is_trailer(const void* block, u64 word) {
  return (forged_bits(block, word) | (word & low_mask(kBytesShift))) == 0;
}

struct Claim {
  usize bytes;
  Origin origin;
};
FREESTONE_INLINE Claim claim_of(u64 trailer) {
  return {(trailer >> kBytesShift) & low_mask(kBytesBits),
          static_cast<Origin>((trailer >> kOriginShift) & low_mask(kOriginBits))};
}

// The gap lies between the bytes asked for and the trailer. Its last bytes are written and compared in two pieces at
// fixed places, or in the second alone if that holds the whole gap. One table row serves all gaps: it is read from the
// position that the gap's length gives.
inline constexpr usize kNearGap = kChunkBytes;
inline constexpr usize kSeenGap = 24;
inline constexpr usize kSeenBytes = kSeenGap + kTrailerBytes;  // from the end of the block
static_assert(!kMitigations.trailer || kSeenBytes <= kBlockBytesMin);
inline constexpr usize kLongRow = kSeenGap + 1;  // the gap is longer: all canary

static_assert(kLongRow + kSeenGap <= kGapTableBytes);

// The two pieces, counted from the end of the block: where they lie, what they must hold, and a mask of the bytes that
// are gap.
inline constexpr usize kNearColumn = kSeenGap - kNearGap;
FREESTONE_INLINE Chunk seen_row(usize gap) { return load_chunk(block_secrets.gap + gap); }
FREESTONE_INLINE Chunk seen_mask(usize gap) { return load_chunk(block_secrets.gap_mask + gap); }
FREESTONE_INLINE char* near_piece(char* end) { return end - kTrailerBytes - kNearGap; }
FREESTONE_INLINE const char* near_piece(const char* end) { return end - kTrailerBytes - kNearGap; }
FREESTONE_INLINE Chunk near_row(usize gap) { return seen_row(kNearColumn + gap); }
FREESTONE_INLINE Chunk near_mask(usize gap) { return seen_mask(kNearColumn + gap); }
// The bits in which they differ from what they must hold.
FREESTONE_INLINE Chunk seen_damage(const char* end, usize gap) {
  return (load_chunk(end - kSeenBytes) ^ seen_row(gap)) & seen_mask(gap);
}
FREESTONE_INLINE Chunk near_damage(const char* end, usize gap) {
  return (load_chunk(near_piece(end)) ^ near_row(gap)) & near_mask(gap);
}

// A gap of at most kSeenGap before the end of a block, written or compared. False: it is longer.
FREESTONE_INLINE bool store_short_gap(char* end, usize gap) {
  if (FREESTONE_UNLIKELY(gap > kNearGap)) {
    if (gap > kSeenGap) return false;
    store_chunk(end - kSeenBytes, seen_row(gap));
  }
  store_chunk(near_piece(end), near_row(gap));
  return true;
}
FREESTONE_INLINE bool short_gap_damage(const char* end, usize gap, Chunk& damage) {
  if (FREESTONE_UNLIKELY(gap > kNearGap)) {
    if (gap > kSeenGap) return false;
    damage = seen_damage(end, gap) | near_damage(end, gap);
  } else {
    damage = near_damage(end, gap);
  }
  return true;
}

// Canary bytes in [from, end), of any length; many of them by steps.
inline constexpr usize kCanaryStep = 4 * kChunkBytes;
inline Chunk canaries() {
  const u64 eight = u64{block_secrets.canary} * 0x0101'0101'0101'0101;
  return Chunk{eight, eight};
}
inline void store_canaries(char* from, char* end) {
  if (end - from < static_cast<std::ptrdiff_t>(kChunkBytes)) {
    while (from < end) *from++ = static_cast<char>(block_secrets.canary);
    return;
  }
  const Chunk all = canaries();
  for (; end - from > static_cast<std::ptrdiff_t>(kCanaryStep); from += kCanaryStep) {
    for (usize k = 0; k < kCanaryStep; k += kChunkBytes) store_chunk(from + k, all);
  }
  for (; end - from > static_cast<std::ptrdiff_t>(kChunkBytes); from += kChunkBytes) store_chunk(from, all);
  store_chunk(end - kChunkBytes, all);
}
inline bool canaries_are_whole(const char* from, const char* end) {
  const Chunk all = canaries();
  Chunk wrong = {};
  if (end - from < static_cast<std::ptrdiff_t>(kChunkBytes)) {
    for (; from < end; ++from) wrong[0] |= u64{static_cast<u8>(*from)} ^ block_secrets.canary;
    return is_zero(wrong);
  }
  for (; end - from > static_cast<std::ptrdiff_t>(kCanaryStep); from += kCanaryStep) {
    const auto damage = [=](usize k) { return load_chunk(from + k * kChunkBytes) ^ all; };
    wrong |= damage(0) | damage(1) | damage(2) | damage(3);
  }
  for (; end - from > static_cast<std::ptrdiff_t>(kChunkBytes); from += kChunkBytes) wrong |= load_chunk(from) ^ all;
  return is_zero(wrong | (load_chunk(end - kChunkBytes) ^ all));
}
// A gap of any length: a zero, then canaries.
inline void store_gap(char* from, char* end) {
  if (from >= end) return;
  *from = 0;
  store_canaries(from + 1, end);
}
// Where in the block the first wrong byte of [from, end) lies; kUnknown when all are right. The byte at `from` must be
// `first`, the others canaries.
inline usize first_wrong(const char* block, const char* from, const char* end, u8 first) {
  for (const char* at = from; at < end; ++at) {
    if (static_cast<u8>(*at) != (at == from ? first : block_secrets.canary)) return static_cast<usize>(at - block);
  }
  return BlockFacts::kUnknown;
}
inline bool gap_is_whole(const char* from, const char* end) {
  return from >= end || (*from == 0 && canaries_are_whole(from + 1, end));
}

// A gap longer than kSeenGap, up to the end of the block: by two pieces where they meet.
FREESTONE_INLINE void store_long_gap(char* from, char* end) {
  const auto first = load_chunk(block_secrets.gap + kSeenGap), last = near_row(kLongRow);
  if (near_piece(end) - from > static_cast<std::ptrdiff_t>(kChunkBytes)) return store_gap(from, end - kTrailerBytes);
  store_chunk(from, first);
  store_chunk(near_piece(end), last);
}
FREESTONE_INLINE bool long_gap_is_whole(const char* from, const char* end) {
  const auto first = load_chunk(block_secrets.gap + kSeenGap), last = near_row(kLongRow);
  if (near_piece(end) - from > static_cast<std::ptrdiff_t>(kChunkBytes)) return gap_is_whole(from, end - kTrailerBytes);
  return is_zero((load_chunk(from) ^ first) | (load_chunk(near_piece(end)) ^ last));
}

FREESTONE_INLINE u64 load_trailer(const void* trailer) {
  return __atomic_load_n(static_cast<const u64*>(trailer), __ATOMIC_RELAXED);
}
// The bytes asked for, read with one load. Only a whole trailer tells the truth.
FREESTONE_INLINE usize claimed_bytes(const void* trailer) {
  static_assert(kBytesShift % 8 == 0 && kBytesBits == 16 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  struct [[gnu::packed, gnu::may_alias]] Bytes {  // not by memcpy, which calls this
    u16 value;
  };
  return reinterpret_cast<const Bytes*>(static_cast<const char*>(trailer) + kBytesShift / 8)->value;
}
FREESTONE_INLINE void store_trailer(void* trailer, u64 word) {
  __atomic_store_n(static_cast<u64*>(trailer), word, __ATOMIC_RELAXED);
}
// Of a block that is whole, live or free.
FREESTONE_INLINE void begin_change(const void* block, void* trailer) {
  store_trailer(trailer, changing_word(block));
  order_stores();  // WORDS-1
}
inline bool is_changing(const void* block, const void* trailer) {
  return load_trailer(trailer) == changing_word(block);
}
// A free block is about to be handed out. The bits of its last word that are wrong.
FREESTONE_INLINE u64 begin_change_of_free(const void* block, void* trailer) {
  const u64 wrong = load_trailer(trailer) ^ free_word(block);
  begin_change(block, trailer);
  return wrong;
}

// Writes the byte back that stands there: a fresh page that is first read and then written faults twice.
FREESTONE_INLINE void touch(char* at) {
#if defined(__x86_64__)
  asm volatile("orb $0, %0" : "+m"(*at));
#else
  *static_cast<volatile char*>(at) = *static_cast<volatile char*>(at);
#endif
}

// Blocks of at most this size are cleared and checked in line, with four branches on the size and no loop.
inline constexpr usize kInlineBytes = 256;
static_assert(!kMitigations.trailer || kBlockBytesMin == 2 * kChunkBytes);
inline constexpr usize kFirstMiddle = 7 * kChunkBytes;
static_assert(kInlineBytes <= kFirstMiddle + 9 * kChunkBytes);

// Visits every chunk of the block but the last, some twice, by offset.
template <typename Visit>
FREESTONE_INLINE void for_chunks(usize bytes, Visit visit) {
  const auto four = [&](usize from) {
    for (usize k = 0; k < 4; ++k) visit(from + k * kChunkBytes);
  };
  visit(0);
  visit(bytes - 2 * kChunkBytes);
  if (FREESTONE_LIKELY(bytes <= 3 * kChunkBytes)) return;
  visit(kChunkBytes);
  if (bytes <= 4 * kChunkBytes) return;
  visit(2 * kChunkBytes);
  if (bytes > 8 * kChunkBytes) {
    four(3 * kChunkBytes);
    if (bytes > kFirstMiddle + 5 * kChunkBytes) four(kFirstMiddle);
  }
  four(bytes - 5 * kChunkBytes);
}

// The last two words of a block that is clear but for them.
FREESTONE_INLINE void end_as_free(char* trailer, u64 free) {
  store_word(trailer - sizeof(u64), 0);
  order_stores();  // WORDS-1
  store_trailer(trailer, free);
}
// Clears the block for a free: its last word says `changing` until all before it is 0.
FREESTONE_INLINE void clear_inline(char* block, usize bytes) {
  const u64 free = free_word(block);
  char* const trailer = block + bytes - kTrailerBytes;
  begin_change(block, trailer);
  for_chunks(bytes, [&](usize offset) { clear_chunk(block + offset); });
  end_as_free(trailer, free);
}
inline void clear_block(char* block, usize bytes) {
  const u64 free = free_word(block);
  char* const trailer = block + bytes - kTrailerBytes;
  begin_change(block, trailer);
  clear(block, bytes - kChunkBytes);
  end_as_free(trailer, free);
}
// Whether a block that was free, and is changing now, was clear. `wrong`: what begin_change_of_free said.
FREESTONE_INLINE bool was_clear_inline(const char* block, usize bytes, u64 wrong) {
  const u64 last = load_word(block + bytes - kChunkBytes) | wrong;
  Chunk any = {};
  for_chunks(bytes, [&](usize offset) { any |= chunk_at(block + offset); });
  return (bits_of(any) | last) == 0;
}
inline bool was_clear(const char* block, usize bytes, u64 wrong) {
  return is_clear(block, bytes - kChunkBytes) && (load_word(block + bytes - kChunkBytes) | wrong) == 0;
}

}  // namespace freestone::hardened
