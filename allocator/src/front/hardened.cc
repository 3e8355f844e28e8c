// Room 9, front: see hardened.h and hardened_paths.h. Here: what the calls seldom do. hardened_large.cc: larger blocks.

#include "front/hardened.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "config/options.h"
#include "front/hardened_large.h"
#include "front/hardened_paths.h"
#include "front/large.h"
#include "front/sampled.h"
#include "front/zero_size.h"
#include "platform/message.h"
#include "span/mapping.h"

namespace freestone {

constinit u64 block_secret = 0;

namespace hardened {

namespace {

// Says why a slab block's trailer does not say live.
FREESTONE_SLOW void explain(const void* block, u8 tag, const char* invalid) {
  const ClassInfo& info = class_info(tag);
  const usize offset = (address_of(block) - region.base) & (units_to_bytes(info.units) - 1);
  const u32 number = block_number(info, offset);
  if (usize{number} * info.bytes != offset || number >= info.blocks) return misuse(invalid, block, info.bytes);
  const u64 trailer = load_word(static_cast<const char*>(block) + info.bytes - kTrailerBytes);
  misuse(trailer == 0 ? "double free" : "heap overflow", block, info.bytes);
}

// Everything that can be known about a live slab block. False: it is not one, and that has been said.
bool examine(const void* block, u8 tag, const char* invalid, Claim& claim) {
  SlabBlock found;
  const u64 secret = block_secret;
  const bool fits = shape_of(address_of(block) - region.base, tag, found);
  const u64 plain = fits ? without_key(load_word(static_cast<const char*>(block) + found.bytes - kTrailerBytes), block, secret) : 0;
  if (!says_live(plain)) {
    explain(block, tag, invalid);
    return false;
  }
  claim = claim_of(plain);
  if (!canary_is_whole(static_cast<const char*>(block) + claim.bytes, secret)) misuse("heap overflow", block, found.bytes);
  if (!before_is_sound(block, found, secret)) misuse("heap overflow before the start", block, found.bytes);
  return true;
}

void* arm_any(void* memory, usize bytes, Origin origin) {
  if (!in_window(memory)) return memory;  // null, a mapping, or glibc's: there is no window while the allocator is switched off
  const u8 tag = tag_of(unit_of(memory));
  if (is_slab_tag(tag)) return arm(memory, class_info(tag).bytes, bytes, origin);
  return has_record(memory, tag) ? arm_large(memory, bytes, origin) : memory;  // a sampled block ends where a guard begins
}

}  // namespace

// A misuse was seen. Aborts, unless the program asked for a report only; the caller then leaves the block alone.
FREESTONE_SLOW void misuse(const char* kind, const void* block, usize block_bytes) {
  if (options.on_error == 0) fail_block(kind, block, block_bytes);
  static Atomic<u32> reports;
  constexpr u32 kReportsMax = 100;
  if (reports.fetch_add_relaxed(1) < kReportsMax) (Message() << kind << " of " << block << " (block of " << u64{block_bytes} << " bytes)").write();
}

FREESTONE_SLOW void* arm_written(char* block, usize block_bytes, usize bytes, Origin origin) {
  misuse("write after free", block, block_bytes);
  std::memset(block, 0, block_bytes);
  return mark_live(block, block_bytes, bytes, origin);
}

// All of the block while the thread's allowance lasts. The word that says free is written last and whole.
[[maybe_unused]] __attribute__((noinline)) static void retire_whole(void* block, usize block_bytes) {
  auto* const start = static_cast<char*>(block);
  if (this_thread.cache_offset == 0 || thread_cache().allowance.take(block_bytes)) {
    std::memset(start + sizeof(Chunk), 0, block_bytes - 2 * sizeof(Chunk));
  }
  clear_ends(start, block_bytes);
  wait(block, block_bytes, false);
}

// The two ends of the block at least.
__attribute__((noinline)) void retire_larger(void* block, usize block_bytes) {
  if constexpr (kMitigations.zero_on_free) {
    if (!thread_cache().allowance.refuses(block_bytes)) return retire_whole(block, block_bytes);
    clear_ends(static_cast<char*>(block), block_bytes);
  } else {
    store_word(trailer_of(block, block_bytes), 0);
  }
  wait(block, block_bytes, false);
}

FREESTONE_SLOW void leave_apart(void* block, usize block_bytes) {
  if (sampling.load_relaxed() == Sampling::every_block) sample_freed(block);
  if (this_thread.cache_offset != 0) block = thread_cache().quarantine.exchange(block, block_bytes > kQuarantineSmallMax);
  if (block != nullptr) freestone::deallocate(block);
}

__attribute__((noinline)) void deallocate_with_care(void* block, usize bytes, Origin origin) {
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  if (!is_slab_tag(tag)) return has_record(block, tag) ? deallocate_large(block, tag, bytes, origin) : deallocate_other(block);
  const usize block_bytes = kShapes.of[tag].bytes;
  Claim claim;
  if (!examine(block, tag, "invalid free", claim)) return;
  if (!origins_match(claim.origin, origin)) return misuse("mismatched free", block, block_bytes);
  if (bytes != kUnknownBytes && bytes != claim.bytes) return misuse("sized delete with a wrong size", block, block_bytes);
  retire(block, block_bytes);
}

FREESTONE_SLOW void* allocate_first(usize bytes, Origin origin) { return arm_any(allocate_slow(bytes + kTrailerBytes), bytes, origin); }

__attribute__((noinline)) void* allocate_larger(usize bytes, Origin origin) {
  const SizeClass c = class_above_fine(bytes + kTrailerBytes);
  Cache& cache = thread_cache();
  void** top = cache.top[c];
  if (FREESTONE_UNLIKELY(top == cache.low[c])) return allocate_first(bytes, origin);
  cache.top[c] = top - 1;
  return is_slab_class(c) ? arm(top[-1], class_info(c).bytes, bytes, origin) : arm_large(top[-1], bytes, origin);
}

__attribute__((noinline)) void* allocate_other(usize bytes, usize alignment, Origin origin) {
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

void* allocate_zeroed(usize bytes) {
  if constexpr (!kMitigations.trailer) return freestone::allocate_zeroed(bytes);
  if (bytes > kSlabRequestMax) {
    // Large memory is often known to be zero: the heap clears what is not, and the mark goes behind it.
    void* block = bytes <= ~usize{0} - kTrailerBytes ? freestone::allocate_zeroed(bytes + kTrailerBytes) : nullptr;
    if (block == nullptr) errno = ENOMEM;
    return arm_any(block, bytes, Origin::c_call);
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
      // Neither what a shrink gives up nor the old canary is left where a later growth would show it.
      auto* const start = static_cast<char*>(block);
      const usize kept = min_of(bytes, old_bytes);
      std::memset(start + kept, 0, block_bytes - kTrailerBytes - kept);
      return mark_live(start, block_bytes, bytes, claim.origin);
    }
  } else if (kMitigations.zero_size && is_zero_size(block)) {
    old_bytes = 0;
  } else if (has_record(block, tag)) {
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
  if (has_record(block, tag)) return examine_large(block, claim) ? claim.bytes : 0;
  const usize bytes = freestone::usable_bytes(block);
  return in_window(block) ? bytes : bytes - kHeldBackBytes;  // a mapping has no check word, but counts as if: good_size is the same everywhere
}

}  // namespace hardened
}  // namespace freestone
