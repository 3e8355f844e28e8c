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

// What the paths of every call need of a class, by tag.
struct SlabShape {
  u32 bytes = 0;
  u32 offset_mask = 0;          // of an address, from the region's base: the offset in its slab
  std::int32_t last = -1;       // the highest offset at which a block could still end in the slab; below every offset for a tag that is no slab's
};
struct ShapeTable {
  SlabShape of[kTagCount];
  u16 of_granules[kGranuleTableBytes / kGranule + 1];  // block bytes, by request with trailer

  constexpr ShapeTable() : of(), of_granules() {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
      const auto slab_bytes = static_cast<u32>(units_to_bytes(class_info(c).units));
      of[c] = {class_info(c).bytes, slab_bytes - 1, static_cast<std::int32_t>(slab_bytes - class_info(c).bytes)};
    }
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

// False when no block can start there: the tag is no slab's, or the address is too near the slab's end.
FREESTONE_INLINE bool shape_of(usize from_base, u8 tag, SlabBlock& found) {
  const SlabShape& shape = kShapes.of[tag];
  found = {shape.bytes, from_base & shape.offset_mask};
  return static_cast<std::int32_t>(found.offset) <= shape.last;
}

FREESTONE_INLINE char* trailer_of(void* block, usize block_bytes) { return static_cast<char*>(block) + block_bytes - kTrailerBytes; }

// Makes a block that the heap gave out live, whatever it holds.
FREESTONE_INLINE void* mark_live(char* block, usize block_bytes, usize bytes, Origin origin) {
  lay_pattern(block, bytes, block_bytes - kTrailerBytes);
  store_word(trailer_of(block, block_bytes), live_word(block, bytes, origin));
  return block;
}

FREESTONE_SLOW void* arm_written(char* block, usize block_bytes, usize bytes, Origin origin) {
  misuse("write after free", block, block_bytes);
  std::memset(block, 0, block_bytes);
  return mark_live(block, block_bytes, bytes, origin);
}

// Makes a block that the heap gave out live, if it is as it was left.
FREESTONE_INLINE void* arm(void* memory, usize block_bytes, usize bytes, Origin origin) {
  auto* block = static_cast<char*>(memory);
  const bool untouched = kMitigations.zero_on_free ? ends_are_clear(block, block_bytes) : load_word(trailer_of(block, block_bytes)) == 0;
  if (FREESTONE_UNLIKELY(!untouched)) return arm_written(block, block_bytes, bytes, origin);
  return mark_live(block, block_bytes, bytes, origin);
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
    if (FREESTONE_LIKELY(found.offset != 0)) {
      const char* before = static_cast<const char*>(block) - found.bytes;
      const u64 word = load_word(static_cast<const char*>(block) - kTrailerBytes);
      // Whether it is live or free is as good as random: no branch.
      return !(static_cast<unsigned>(word != 0) & static_cast<unsigned>(!says_live(word, before)));
    }
  }
  return true;
}

// Everything that can be known about a live slab block. False: it is not one, and that has been said.
bool examine(const void* block, u8 tag, const char* invalid, Claim& claim) {
  SlabBlock found;
  const bool fits = shape_of(address_of(block) - region.base, tag, found);
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

// Above kClearInline bytes: all of the block as long as the thread's allowance lasts, its ends beyond. The word that says free is written
// last and whole.
[[maybe_unused]] FREESTONE_INLINE void clear_larger(char* block, usize bytes) {
  if (this_thread.cache_offset == 0 || thread_cache().allowance.take(bytes)) std::memset(block + sizeof(Chunk), 0, bytes - 2 * sizeof(Chunk));
  clear_ends(block, bytes);
}

// A block of a thread that has no cache, or whose every free is observed.
FREESTONE_SLOW void leave_apart(void* block, usize block_bytes) {
  if (sampling.load_relaxed() == Sampling::every_block) sample_freed(block);
  if (this_thread.cache_offset != 0) block = thread_cache().quarantine.exchange(block, block_bytes > kQuarantineSmallMax);
  if (block != nullptr) freestone::deallocate(block);
}

// Into the quarantine; the block that leaves its place goes to the cache.
FREESTONE_INLINE void wait(void* block, usize block_bytes, bool small) {
  Cache& cache = thread_cache();
  if (FREESTONE_UNLIKELY(!cache.is_plain)) return leave_apart(block, block_bytes);
  void* leaving = cache.quarantine.exchange(block, !small);
  if (leaving == nullptr) return;
  const unsigned tag = tag_of(unit_of(leaving));
  void** top = cache.top[tag];
  if (FREESTONE_UNLIKELY(top == cache.high[tag])) return deallocate_slow(leaving);
  cache.push(tag, top, leaving);
}

__attribute__((noinline)) void retire_larger(void* block, usize block_bytes) {
  if constexpr (kMitigations.zero_on_free) {
    clear_larger(static_cast<char*>(block), block_bytes);
  } else {
    store_word(trailer_of(block, block_bytes), 0);
  }
  wait(block, block_bytes, false);
}

FREESTONE_INLINE void retire(void* block, usize block_bytes) {
  static_assert(kClearInline == kQuarantineSmallMax);
  if (block_bytes > kClearInline) return retire_larger(block, block_bytes);
  if constexpr (kMitigations.zero_on_free) {
    clear_small(static_cast<char*>(block), block_bytes);
  } else {
    store_word(trailer_of(block, block_bytes), 0);
  }
  wait(block, block_bytes, true);
}

// Out of line: something about the block is not as the call expects, or the forms of the call mix in a way that is allowed.
FREESTONE_SLOW void deallocate_with_care(void* block, usize bytes, Origin origin) {
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  if (!is_slab_tag(tag)) return deallocate_other(block, bytes, origin);
  const usize block_bytes = kShapes.of[tag].bytes;
  Claim claim;
  if (!examine(block, tag, "invalid free", claim)) return;
  if (!origins_match(claim.origin, origin)) return misuse("mismatched free", block, block_bytes);
  if (bytes != kUnknownBytes && bytes != claim.bytes) return misuse("sized delete with a wrong size", block, block_bytes);
  retire(block, block_bytes);
}

void* arm_any(void* memory, usize bytes, Origin origin) {
  if (!in_window(memory)) return memory;  // null, a mapping, or glibc's: there is no window while the allocator is switched off
  const u8 tag = tag_of(unit_of(memory));
  return is_slab_tag(tag) ? arm(memory, class_info(tag).bytes, bytes, origin) : arm_large(memory, bytes, origin);
}

FREESTONE_SLOW void* allocate_first(usize bytes, Origin origin) { return arm_any(allocate_slow(bytes + kTrailerBytes), bytes, origin); }

// Blocks of slabs that are too large for the table of classes.
__attribute__((noinline)) void* allocate_larger(usize bytes, Origin origin) {
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

namespace {

FREESTONE_INLINE void* allocate_as(usize bytes, Origin origin) {
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

}  // namespace

FREESTONE_HOT void* allocate(usize bytes, Origin origin) { return allocate_as(bytes, origin); }
FREESTONE_HOT void* allocate_plain(usize bytes) { return allocate_as(bytes, Origin::c_call); }

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

namespace {

FREESTONE_INLINE void deallocate_as(void* block, usize bytes, Origin origin) {
  if constexpr (!kMitigations.trailer) return freestone::deallocate(block);
  const usize from_base = address_of(block) - region.base;
  if (FREESTONE_UNLIKELY(from_base >= region.window_bytes)) return deallocate_with_care(block, bytes, origin);
  SlabBlock found;
  if (FREESTONE_UNLIKELY(!shape_of(from_base, tag_table()[from_base >> kUnitShift], found))) return deallocate_with_care(block, bytes, origin);
  const u64 plain = load_word(trailer_of(block, found.bytes)) ^ key_of(block);
  const usize claimed = plain & low_mask(kOriginShift);
  if (FREESTONE_UNLIKELY(plain >> kOriginShift != live_tag(origin) || (bytes != kUnknownBytes && bytes != claimed) ||
                         !pattern_is_whole(static_cast<char*>(block), claimed, found.bytes - kTrailerBytes) || !before_is_sound(block, found))) {
    return deallocate_with_care(block, bytes, origin);
  }
  retire(block, found.bytes);
}

}  // namespace

FREESTONE_HOT void deallocate(void* block, usize bytes, Origin origin) { deallocate_as(block, bytes, origin); }
FREESTONE_HOT void deallocate_plain(void* block) { deallocate_as(block, kUnknownBytes, Origin::c_call); }

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
    if (origins_match(claim.origin, Origin::c_call) && resize_in_place(block, claim, bytes)) return block;
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
