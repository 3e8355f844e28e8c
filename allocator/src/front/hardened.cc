// Room 9, front: see hardened.h. Here: the blocks of slabs, and which path a call takes. hardened_large.cc: what is larger.

#include "front/hardened.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "config/options.h"
#include "front/block_words.h"
#include "front/hardened_large.h"
#include "front/large.h"
#include "front/sampled.h"
#include "front/zero_size.h"
#include "platform/message.h"
#include "span/mapping.h"

namespace freestone {

constinit u64 block_secret = 0;

namespace hardened {

namespace {

constexpr usize kTableRequestMax = kGranuleTableBytes - kTrailerBytes;  // with the trailer, its class is in the cache's table
constexpr usize kSlabRequestMax = kSmallBytesMax - kTrailerBytes;

// What the paths of every call need of a class, by tag; 0 bytes for a tag that is no slab's.
struct SlabShape {
  u32 bytes = 0;
  u32 offset_mask = 0;  // of an address, from the region's base: the offset in its slab
};
struct ShapeTable {
  SlabShape of[kTagCount];
  u16 of_granules[kGranuleTableBytes / kGranule + 1];  // block bytes, by request with trailer

  constexpr ShapeTable() : of(), of_granules() {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) of[c] = {class_info(c).bytes, static_cast<u32>(units_to_bytes(class_info(c).units) - 1)};
    for (usize g = 0; g <= kGranuleTableBytes / kGranule; ++g) of_granules[g] = static_cast<u16>(class_bytes(class_of(g * kGranule)));
  }
};
constexpr ShapeTable kShapes;

FREESTONE_INLINE bool is_slab_tag(u8 tag) { return tag != kTagNone && tag <= kLastSmallClass; }

// A slab block and the facts about it that a check needs.
struct SlabBlock {
  usize bytes = 0;
  usize offset = 0;  // in its slab
};

// False when the address is so near the slab's end that no block can start there.
FREESTONE_INLINE bool shape_of(const void* block, u8 tag, SlabBlock& found) {
  const SlabShape& shape = kShapes.of[tag];
  found = {shape.bytes, (address_of(block) - region.base) & shape.offset_mask};
  return found.offset + found.bytes <= usize{shape.offset_mask} + 1;
}

FREESTONE_INLINE char* trailer_of(void* block, usize block_bytes) { return static_cast<char*>(block) + block_bytes - kTrailerBytes; }

FREESTONE_SLOW void clean_up(char* block, usize block_bytes) {
  misuse("write after free", block, block_bytes);
  std::memset(block, 0, block_bytes);
}

// Makes a block that the heap gave out live.
FREESTONE_INLINE void* arm(void* memory, usize block_bytes, usize bytes, Origin origin) {
  auto* block = static_cast<char*>(memory);
  if constexpr (kMitigations.zero_on_free) {
    if (FREESTONE_UNLIKELY(!ends_are_clear(block, block_bytes))) clean_up(block, block_bytes);
  } else {
    if (FREESTONE_UNLIKELY(load_word(trailer_of(block, block_bytes)) != 0)) misuse("write after free", block, block_bytes);
  }
  lay_pattern(block, bytes, block_bytes - kTrailerBytes);
  store_word(trailer_of(block, block_bytes), live_word(block, bytes, origin));
  return block;
}

// Says why a slab block's trailer does not say live.
FREESTONE_SLOW void explain(const void* block, u8 tag, const char* invalid) {
  const ClassInfo& info = class_info(tag);
  const usize offset = (address_of(block) - region.base) & (units_to_bytes(info.units) - 1);
  const u32 number = block_number(info, offset);
  if (usize{number} * info.bytes != offset || number >= info.blocks) return misuse(invalid, block, info.bytes);
  const u64 trailer = load_word(static_cast<const char*>(block) + info.bytes - kTrailerBytes);
  misuse(trailer == 0 ? "double free" : "heap overflow", block, info.bytes);
}

FREESTONE_INLINE bool before_is_sound(const void* block, const SlabBlock& found) {
  if constexpr (kMitigations.neighbours) {
    if (found.offset != 0) {
      const char* before = static_cast<const char*>(block) - found.bytes;
      const u64 word = load_word(static_cast<const char*>(block) - kTrailerBytes);
      return word == 0 || says_live(word, before);
    }
  }
  return true;
}

// Everything that can be known about a live slab block. False: it is not one, and that has been said.
bool examine(const void* block, u8 tag, const char* invalid, Claim& claim) {
  SlabBlock found;
  const bool fits = shape_of(block, tag, found);
  const u64 plain = fits ? load_word(static_cast<const char*>(block) + found.bytes - kTrailerBytes) ^ key_of(block) : 0;
  if (!fits || plain >> 32 != kLive) {
    explain(block, tag, invalid);
    return false;
  }
  claim = claim_of(plain);
  if (!pattern_is_whole(static_cast<const char*>(block), claim.bytes, found.bytes - kTrailerBytes)) misuse("heap overflow", block, found.bytes);
  if (!before_is_sound(block, found)) misuse("heap overflow before the start", block, found.bytes);
  return true;
}

// Out of line: a slab block whose trailer is not what the call expects. False: that has been said, and the block is left alone.
FREESTONE_SLOW bool is_still_fine(void* block, u8 tag, usize bytes, Origin origin) {
  Claim claim;
  if (!examine(block, tag, "invalid free", claim)) return false;
  const usize block_bytes = kShapes.of[tag].bytes;
  if (!origins_match(claim.origin, origin)) {
    misuse("mismatched free", block, block_bytes);
    return false;
  }
  if (bytes != kUnknownBytes && bytes != claim.bytes) {
    misuse("sized delete with a wrong size", block, block_bytes);
    return false;
  }
  return true;
}

// Above kClearInline bytes. The word that says free is written last and whole.
[[maybe_unused]] FREESTONE_SLOW void clear_larger(char* block, usize bytes) {
  usize cleared = bytes - sizeof(Chunk);
  if (bytes > kClearAlwaysBytes && this_thread.cache_offset != 0 && !thread_cache().allowance.take(bytes)) cleared = kClearAlwaysBytes;
  std::memset(block, 0, cleared);
  clear_ends(block, bytes);
}

FREESTONE_SLOW void leave_without_cache(void* block) {
  if (sampling.load_relaxed() == Sampling::every_block) sample_freed(block);
  freestone::deallocate(block);
}

FREESTONE_INLINE void retire(void* block, const SlabBlock& found) {
  if constexpr (kMitigations.zero_on_free) {
    if (FREESTONE_LIKELY(found.bytes <= kClearInline)) {
      clear_small(static_cast<char*>(block), found.bytes);
    } else {
      clear_larger(static_cast<char*>(block), found.bytes);
    }
  } else {
    store_word(trailer_of(block, found.bytes), 0);
  }
  if (FREESTONE_UNLIKELY(this_thread.cache_offset == 0)) return leave_without_cache(block);
  if (FREESTONE_UNLIKELY(sampling.load_relaxed() == Sampling::every_block)) sample_freed(block);
  Cache& cache = thread_cache();
  void* leaving = cache.quarantine.exchange(block, found.bytes);
  if (leaving == nullptr) return;
  const unsigned tag = tag_of(unit_of(leaving));
  void** top = cache.top[tag];
  if (FREESTONE_UNLIKELY(top == cache.high[tag])) return deallocate_slow(leaving);
  cache.push(tag, top, leaving);
}

void* arm_any(void* memory, usize bytes, Origin origin) {
  if (memory == nullptr || mode() != Mode::active || !in_window(memory)) return memory;
  const u8 tag = tag_of(unit_of(memory));
  return is_slab_tag(tag) ? arm(memory, class_info(tag).bytes, bytes, origin) : arm_large(memory, bytes, origin);
}

FREESTONE_SLOW void* allocate_first(usize bytes, Origin origin) { return arm_any(allocate_slow(bytes + kTrailerBytes), bytes, origin); }

// Blocks of slabs that are too large for the table of classes.
FREESTONE_SLOW void* allocate_larger(usize bytes, Origin origin) {
  const SizeClass c = class_above_fine(bytes + kTrailerBytes);
  Cache& cache = thread_cache();
  void** top = cache.top[c];
  if (FREESTONE_UNLIKELY(top == cache.low[c])) return allocate_first(bytes, origin);
  cache.top[c] = top - 1;
  return arm(top[-1], class_info(c).bytes, bytes, origin);
}

FREESTONE_SLOW void* allocate_other(usize bytes, usize alignment, Origin origin) {
  if (bytes > ~usize{0} - kTrailerBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  return arm_any(alignment <= kGranule ? freestone::allocate(bytes + kTrailerBytes) : freestone::allocate_aligned(bytes + kTrailerBytes, alignment), bytes, origin);
}

FREESTONE_SLOW void* allocate_nothing(Origin origin) {
  if constexpr (kMitigations.zero_size) {
    if (ensure_started() == Mode::active) {
      if (void* block = take_zero_size(); block != nullptr) return block;
    }
  }
  return allocate_other(0, 1, origin);
}

}  // namespace

// A misuse was seen. Aborts, unless the program asked for a report only; the caller then leaves the block alone.
FREESTONE_SLOW void misuse(const char* kind, const void* block, usize block_bytes) {
  if (options.on_error == 0) fail_block(kind, block, block_bytes);
  static Atomic<u32> reports;
  constexpr u32 kReportsMax = 100;
  if (reports.fetch_add_relaxed(1) < kReportsMax) (Message() << kind << " of " << block << " (block of " << u64{block_bytes} << " bytes)").write();
}

FREESTONE_HOT void* allocate(usize bytes, Origin origin) {
  if constexpr (!kMitigations.trailer) return freestone::allocate(bytes);
  if (FREESTONE_UNLIKELY(bytes - 1 >= kTableRequestMax)) {
    if (bytes == 0) return allocate_nothing(origin);
    return bytes <= kSlabRequestMax ? allocate_larger(bytes, origin) : allocate_other(bytes, 1, origin);
  }
  Cache& cache = thread_cache();
  const usize granules = (bytes + kTrailerBytes + kGranule - 1) / kGranule;
  const SizeClass entry = cache.class_of_granules[granules];
  void** top = cache.top[entry];
  if (FREESTONE_UNLIKELY(top == cache.low[entry])) return allocate_first(bytes, origin);
  cache.top[entry] = top - 1;
  return arm(top[-1], kShapes.of_granules[granules], bytes, origin);
}

void* allocate_zeroed(usize bytes) {
  if constexpr (!kMitigations.trailer) return freestone::allocate_zeroed(bytes);
  if (bytes > kSlabRequestMax) {
    // Large memory is often known to be zero: the heap clears what is not, and the mark goes behind it.
    void* block = bytes <= ~usize{0} - kTrailerBytes ? freestone::allocate_zeroed(bytes + kTrailerBytes) : nullptr;
    if (block == nullptr) errno = ENOMEM;
    return block == nullptr || mode() != Mode::active ? block : arm_large(block, bytes, Origin::c_call);
  }
  void* block = allocate(bytes, Origin::c_call);
  if (block == nullptr || bytes == 0) return block;
  // Up to there the block's two ends, which were checked, are all of it.
  if (!kMitigations.zero_on_free || bytes > 2 * kEndBytes - kTrailerBytes || mode() != Mode::active) std::memset(block, 0, bytes);
  return block;
}

void* allocate_aligned(usize bytes, usize alignment, Origin origin) {
  if constexpr (!kMitigations.trailer) return freestone::allocate_aligned(bytes, alignment);
  return allocate_other(bytes, alignment, origin);
}

FREESTONE_HOT void deallocate(void* block, usize bytes, Origin origin) {
  if constexpr (!kMitigations.trailer) return freestone::deallocate(block);
  if (FREESTONE_UNLIKELY(!in_window(block))) return deallocate_other(block, bytes, origin);
  const u8 tag = tag_of(unit_of(block));
  SlabBlock found;
  const bool fits = shape_of(block, tag, found);
  if (FREESTONE_UNLIKELY(found.bytes == 0)) return deallocate_other(block, bytes, origin);
  const u64 plain = fits ? load_word(trailer_of(block, found.bytes)) ^ key_of(block) : 0;
  const usize claimed = plain & low_mask(kOriginShift);
  if (FREESTONE_UNLIKELY(plain >> kOriginShift != live_tag(origin) || (bytes != kUnknownBytes && bytes != claimed))) {
    if (!is_still_fine(block, tag, bytes, origin)) return;
  }
  if (FREESTONE_UNLIKELY(!pattern_is_whole(static_cast<char*>(block), claimed, found.bytes - kTrailerBytes))) misuse("heap overflow", block, found.bytes);
  if (FREESTONE_UNLIKELY(!before_is_sound(block, found))) misuse("heap overflow before the start", block, found.bytes);
  retire(block, found);
}

void* reallocate(void* block, usize bytes) {
  if (mode() == Mode::disabled || !kMitigations.trailer) return freestone::reallocate(block, bytes);
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  usize old_bytes = 0;
  if (is_slab_tag(tag)) {
    Claim claim;
    if (!examine(block, tag, "invalid realloc", claim)) return nullptr;
    const usize block_bytes = kShapes.of[tag].bytes;
    if (!origins_match(claim.origin, Origin::c_call)) misuse("mismatched realloc", block, block_bytes);
    old_bytes = claim.bytes;
    if (bytes <= block_bytes - kTrailerBytes && bytes + kTrailerBytes > block_bytes / 2) {
      // What a shrink gives up is cleared by the pattern; what a growth gains is the old pattern's place.
      std::memset(static_cast<char*>(block) + bytes, kPattern, block_bytes - kTrailerBytes - bytes);
      store_word(trailer_of(block, block_bytes), live_word(block, bytes, claim.origin));
      return block;
    }
  } else if (kMitigations.zero_size && is_zero_size(block)) {
    old_bytes = 0;
  } else if (has_record(block)) {
    Claim claim;
    if (!examine_large(block, claim)) return nullptr;
    old_bytes = claim.bytes;
  } else if (!in_window(block) && mapped_block_bytes(block) != 0) {
    old_bytes = mapped_block_bytes(block);
    sample_freed(block);  // before its address can belong to another block
    if (void* resized = resize_large(block, old_bytes, bytes, true); resized != nullptr) {
      sample_resized(resized, bytes);
      return resized;
    }
  } else if (tag == kTagSampled && sampled_block(sampled_first_unit(block)) == block) {
    old_bytes = sampled_bytes(sampled_first_unit(block));
  } else {
    return freestone::reallocate(block, bytes);  // no block at all
  }
  void* moved = allocate(bytes, Origin::c_call);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, min_of(old_bytes, bytes));
  deallocate(block, kUnknownBytes, Origin::c_call);
  return moved;
}

usize usable_bytes(const void* block) {
  if (block == nullptr) return 0;
  if (mode() != Mode::active || !kMitigations.trailer) return freestone::usable_bytes(block);
  if (kMitigations.zero_size && is_zero_size(block)) return 0;
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  Claim claim{};
  if (is_slab_tag(tag)) return examine(block, tag, "invalid malloc_usable_size", claim) ? claim.bytes : 0;
  if (has_record(block)) return examine_large(block, claim) ? claim.bytes : 0;
  const usize bytes = freestone::usable_bytes(block);
  return in_window(block) ? bytes : bytes - kHeldBackBytes;  // a mapping has no check word, but counts as if: good_size is the same everywhere
}

}  // namespace hardened
}  // namespace freestone
