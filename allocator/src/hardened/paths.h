// Room 10, hardened: the paths of every call in the hardened build, in the order in which they run, to be inlined into
// the exported functions. checked.cc has the rare cases.
#pragma once

#include "cache/slow.h"
#include "hardened/block_words.h"

namespace freestone::hardened {

inline constexpr usize kTableRequestMax =
    kGranuleTableBytes - kTrailerBytes;  // plus the trailer, the class is in the cache's table
inline constexpr usize kSlabRequestMax = kSmallBytesMax - kTrailerBytes;
inline constexpr usize kCachedRequestMax = kCachedBytesMax - kTrailerBytes;

// What these paths need to know of a class, by tag.
struct SlabShape {
  u32 bytes = 0;
  u32 offset_mask = 0;     // of an address, from the region's base: the offset in its slab
  std::int32_t last = -1;  // the highest offset at which a block could still end in the slab; below every offset for a
                           // tag that is no slab's
};
struct ShapeTable {
  SlabShape of[kTagCount];
  u16 of_granules[kGranuleTableBytes / kGranule + 1];  // block bytes, by request with trailer

  constexpr ShapeTable() : of(), of_granules() {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
      const auto slab_bytes = static_cast<u32>(units_to_bytes(class_info(c).units));
      of[c] = {class_info(c).bytes, slab_bytes - 1, static_cast<std::int32_t>(slab_bytes - class_info(c).bytes)};
    }
    for (usize g = 0; g <= kGranuleTableBytes / kGranule; ++g)
      of_granules[g] = static_cast<u16>(class_bytes(class_of(g * kGranule)));
  }
};
inline constexpr ShapeTable kShapes;

FREESTONE_INLINE bool is_slab_tag(u8 tag) { return tag != kTagNone && tag <= kLastSmallClass; }

// A slab block and the facts about it that a check needs.
struct SlabBlock {
  usize bytes = 0;
  usize offset = 0;  // in its slab
};

// False when no block can start there: the tag is no slab's, or the address is too near the slab's end.
FREESTONE_INLINE bool shape_of(usize from_base, u8 tag, SlabBlock& found) {
  const SlabShape& shape = kShapes.of[tag];
  found = {shape.bytes, from_base & shape.offset_mask};
  return static_cast<std::int32_t>(found.offset) <= shape.last;
}

FREESTONE_INLINE char* trailer_of(void* block, usize block_bytes) {
  return static_cast<char*>(block) + block_bytes - kTrailerBytes;
}

// Out of line, and tail-called: the block was written to after its free; its gap is long; it is larger than
// kInlineBytes.
void* hand_out_written(char* block, usize block_bytes, usize bytes, Origin origin);
void* make_live_long(char* block, usize block_bytes, usize bytes, Origin origin);
void* hand_out_larger(char* block, usize block_bytes, usize bytes, Origin origin);

// Makes a clear block live, which is changing.
template <bool Long = false>
FREESTONE_INLINE void* make_live(char* block, usize block_bytes, usize bytes, Origin origin) {
  char* const end = block + block_bytes;
  char* const trailer = end - kTrailerBytes;
  const usize gap = static_cast<usize>(trailer - block) - bytes;
  if constexpr (Long) {
    store_long_gap(block + bytes, end);
  } else if (FREESTONE_UNLIKELY(!store_short_gap(end, gap))) {
    return make_live_long(block, block_bytes, bytes, origin);
  }
  order_stores();  // WORDS-1
  store_trailer(trailer, trailer_word(block, plain_word(bytes, origin)));
  FREESTONE_CHECK("HARD-1", claim_of(load_trailer(trailer)).bytes == bytes);
  FREESTONE_CHECK("WORDS-1", gap_is_whole(block + bytes, trailer));
  return block;
}

// Makes a block that the heap gave live, after checking that it is still as its free left it.
FREESTONE_INLINE void* hand_out(void* memory, usize block_bytes, usize bytes, Origin origin) {
  auto* block = static_cast<char*>(memory);
  if (kMitigations.zero_on_free && block_bytes > kInlineBytes)
    return hand_out_larger(block, block_bytes, bytes, origin);
  const u64 wrong = begin_change_of_free(block, trailer_of(block, block_bytes));
  const bool untouched = kMitigations.zero_on_free ? was_clear_inline(block, block_bytes, wrong) : wrong == 0;
  if (FREESTONE_UNLIKELY(!untouched)) return hand_out_written(block, block_bytes, bytes, origin);
  return make_live(block, block_bytes, bytes, origin);
}

// The bits that are wrong, in the bytes of blocks' ends and in words. All zero: nothing is wrong.
struct Damage {
  Chunk bytes = {};
  u64 words = 0;
  bool any() const { return (bits_of(bytes) | words) != 0; }
};

// What the bitmap says of the block before one that is not the first of its slab.
FREESTONE_INLINE bool is_free_before(const char* block, const SlabBlock& found) {
  const Record& record = record_of(unit_of(block - found.offset));
  const u32 number = block_number(class_info(tag_of(unit_of(block))), found.offset) - 1;
  return (record.words[number / 64].load_relaxed() >> number % 64 & 1) != 0;
}

// What is wrong with the end of the block before this one. A block that is changing seems damaged too, and so does one
// that ends in 0 and is not free (STATE-1), so whoever finds damage looks again (WORDS-1). The check bits depend on the
// trailer's lowest byte, which needs no look of its own.
FREESTONE_RACES inline Damage damage_before(const char* block, const SlabBlock& found) {
  if constexpr (!kMitigations.neighbours) return {};
  // A guard lies before the first block. Behind its start no block begins, and a look back may reach the guard.
  if (FREESTONE_UNLIKELY(found.offset < found.bytes)) return Damage{Chunk{}, found.offset};
  const u64 word = load_trailer(block - kTrailerBytes);
  if ((word & kFreeState) != 0) {
    Damage damage{{}, word ^ free_word(block - found.bytes)};
    if constexpr (kMitigations.zero_on_free) {
      damage.bytes = load_chunk(block - kSeenBytes);
      damage.words |= load_word(block - kChunkBytes);
    }
    return damage;
  }
  const usize gap = found.bytes - kTrailerBytes - claimed_bytes(block - kTrailerBytes);
  if (FREESTONE_UNLIKELY(word == 0)) {
    const u64 in_use = is_free_before(block, found) ? 0 : 1;
    if constexpr (!kMitigations.zero_on_free) return {Chunk{}, in_use};
    return {load_chunk(block - kSeenBytes) | load_chunk(block - kChunkBytes), in_use};
  }
  Damage damage{{}, forged_bits(block - found.bytes, word)};
  // Of a longer gap, this sees the last kSeenGap bytes.
  if (FREESTONE_UNLIKELY(!short_gap_damage(block, gap, damage.bytes)))
    damage.bytes = seen_damage(block, kLongRow) | near_damage(block, kLongRow);
  return damage;
}

// What a free learns of a slab block before any check.
struct LiveBlock {
  SlabBlock found;
  u64 word;
  usize bytes;  // asked for
  usize gap;
};
// Whether a block may begin there; is_damaged checks the rest.
FREESTONE_INLINE bool live_block(const void* block, LiveBlock& live) {
  const usize from_base = address_of(block) - region.base;
  if (FREESTONE_UNLIKELY(from_base >= region.frontier_bytes.load_operand())) return false;
  if (FREESTONE_UNLIKELY(!shape_of(from_base, tag_table()[from_base >> kUnitShift], live.found))) return false;
  const char* const trailer = static_cast<const char*>(block) + live.found.bytes - kTrailerBytes;
  live.word = load_trailer(trailer);
  live.bytes = claimed_bytes(trailer);
  live.gap = live.found.bytes - kTrailerBytes - live.bytes;
  return true;
}
FREESTONE_INLINE const char* end_of(const void* block, const LiveBlock& live) {
  return static_cast<const char*>(block) + live.found.bytes;
}
// Whether a gap longer than kSeenGap is whole.
FREESTONE_INLINE bool has_long_gap(const void* block, const LiveBlock& live) {
  return live.gap <= live.found.bytes &&
         long_gap_is_whole(static_cast<const char*>(block) + live.bytes, end_of(block, live));
}
// Whether the block, its gap or the end of the block before is damaged; `gap` is what is wrong with the gap. `compared`
// masks the bits of the trailer that the call determines; `said` is what they must be.
FREESTONE_INLINE bool is_damaged(const void* block, const LiveBlock& live, Chunk gap, u64 compared, u64 said) {
  Damage damage = {gap, forged_bits(block, live.word)};
  damage.words |= (live.word & (compared | low_mask(kBytesShift))) ^ said;
  // One word so far, and the secrets are read again: to keep more in registers, the caller would need a frame.
  asm("" : "+r"(damage.words) : : "memory");
  const Damage before = damage_before(static_cast<const char*>(block), live.found);
  return Damage{damage.bytes | before.bytes, damage.words | before.words}.any();
}

// Puts a block of a slab into the quarantine, or into the cache of a build without one.
FREESTONE_INLINE void enqueue(Cache& cache, void* block) {
  const unsigned tag = tag_table()[(address_of(block) - region.base) >> kUnitShift];
  if constexpr (kMitigations.quarantine) {
    void** const top = cache.quarantine.top[tag];
    if (FREESTONE_UNLIKELY(top == cache.quarantine.end[tag])) return put_in_quarantine_full(cache, tag, block);
    *top = block;
    advance_in_order(cache.quarantine.top[tag], top);
  } else {
    void** const top = cache.top[tag];
    if (FREESTONE_UNLIKELY(top == cache.high[tag])) return deallocate_slow(block, tag);
    cache.push(tag, top, block);
  }
}

// Out of line: a block of a thread that has no cache, or whose every free is observed.
void put_in_quarantine_slow(void* block);

FREESTONE_INLINE void put_in_quarantine(void* block, [[maybe_unused]] usize block_bytes) {
  FREESTONE_CHECK("HARD-2",
                  !kMitigations.zero_on_free || is_clear(static_cast<const char*>(block), block_bytes - kChunkBytes));
  Cache& cache = thread_cache();
  if (FREESTONE_UNLIKELY(!cache.is_plain)) return put_in_quarantine_slow(block);
  enqueue(cache, block);
}

// Out of line: a block above kInlineBytes.
void clear_and_quarantine_larger(void* block, usize block_bytes);

FREESTONE_INLINE void clear_and_quarantine(void* block, usize block_bytes) {
  if (block_bytes > kInlineBytes) return clear_and_quarantine_larger(block, block_bytes);
  if constexpr (kMitigations.zero_on_free) {
    clear_inline(static_cast<char*>(block), block_bytes);
  } else {
    store_trailer(trailer_of(block, block_bytes), free_word(block));
  }
  put_in_quarantine(block, block_bytes);
}

// Out of line, in this order: the cache has no block of the class; the request is above the cache's table of classes;
// it is above the cache or aligned, so the heap serves it with the trailer added; it is for 0 bytes.
void* allocate_checked_slow(usize bytes, Origin origin);
void* allocate_above_table(usize bytes, Origin origin);
void* allocate_through_heap(usize bytes, usize alignment, Origin origin);
void* allocate_zero_size(Origin origin);

FREESTONE_INLINE void* allocate_checked(usize bytes, Origin origin) {
  if (FREESTONE_UNLIKELY(bytes - 1 >= kTableRequestMax)) {
    if (bytes == 0) return allocate_zero_size(origin);
    return bytes <= kCachedRequestMax ? allocate_above_table(bytes, origin) : allocate_through_heap(bytes, 1, origin);
  }
  Cache& cache = thread_cache();
  const usize granules = (bytes + kTrailerBytes + kGranule - 1) / kGranule;
  const SizeClass entry = cache.class_of_granules[granules].load_operand();
  void** top = cache.top[entry];
  if (FREESTONE_UNLIKELY(top == cache.low[entry])) return allocate_checked_slow(bytes, origin);
  cache.top[entry] = top - 1;
  __builtin_prefetch(top[-2], 1);
  return hand_out(top[-1], kShapes.of_granules[granules], bytes, origin);
}

// Out of line: the gap is long; or something about the block is not as the call expects, or the forms of the call mix
// in a way that is allowed.
void deallocate_checked_long(void* block, usize bytes, Origin origin);
void deallocate_checked_slow(void* block, usize bytes, Origin origin);

template <bool Long = false>
FREESTONE_INLINE void deallocate_checked(void* block, usize bytes, Origin origin) {
  LiveBlock live;
  if (FREESTONE_UNLIKELY(!live_block(block, live))) return deallocate_checked_slow(block, bytes, origin);
  Chunk gap = {};
  if constexpr (Long) {
    gap[0] = has_long_gap(block, live) ? 0 : 1;
  } else if (FREESTONE_UNLIKELY(!short_gap_damage(end_of(block, live), live.gap, gap))) {
    return deallocate_checked_long(block, bytes, origin);
  }
  // free() takes any alignment.
  const u64 compared =
      origin == Origin::c_call && bytes == kUnknownBytes ? low_mask(kOriginFamilyBits) : low_mask(kOriginBits);
  const bool wrong_size = bytes != kUnknownBytes && bytes != live.bytes;
  if (FREESTONE_UNLIKELY(wrong_size || is_damaged(block, live, gap, compared << kOriginShift,
                                                  u64{static_cast<u8>(origin)} << kOriginShift))) {
    return deallocate_checked_slow(block, bytes, origin);
  }
  clear_and_quarantine(block, live.found.bytes);
}

}  // namespace freestone::hardened
