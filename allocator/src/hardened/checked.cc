// Room 10, hardened: see checked.h and paths.h. This file holds the rare cases; large.cc serves larger blocks.

#include "hardened/checked.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "config/options.h"
#include "front/hardening.h"
#include "front/large.h"
#include "front/sampled.h"
#include "hardened/large.h"
#include "hardened/paths.h"
#include "hardened/walk.h"
#include "hardened/zero_size.h"
#include "platform/message.h"
#include "platform/os.h"
#include "span/mapping.h"

namespace freestone {

namespace hardened {

void draw_secrets() {
  choose_instructions();
  block_secrets.key = os::entropy();
  block_secrets.multiplier = os::entropy() | 1;
  block_secrets.free_key = os::entropy();
  block_secrets.free_multiplier = os::entropy() | 1;
  block_secrets.canary = static_cast<u8>(0x81 + os::entropy() % 0x7e);
  for (usize k = kSeenGap + 1; k < kGapTableBytes; ++k) block_secrets.gap[k] = block_secrets.canary;
  for (usize k = kSeenGap; k < kGapTableBytes; ++k) block_secrets.gap_mask[k] = 0xff;
}

__attribute__((noinline)) void* make_live_long(char* block, usize block_bytes, usize bytes, Origin origin) {
  return make_live<true>(block, block_bytes, bytes, origin);
}
__attribute__((noinline)) void* hand_out_larger(char* block, usize block_bytes, usize bytes, Origin origin) {
  const u64 wrong = begin_change_of_free(block, trailer_of(block, block_bytes));
  touch(block);  // the program will write here, if anywhere; it may leave the other pages of a larger block alone
  if (FREESTONE_UNLIKELY(!was_clear(block, block_bytes, wrong)))
    return hand_out_written(block, block_bytes, bytes, origin);
  return make_live(block, block_bytes, bytes, origin);
}
__attribute__((noinline)) void deallocate_checked_long(void* block, usize bytes, Origin origin) {
  deallocate_checked<true>(block, bytes, origin);
}

namespace {

// What a look at a slab block that must be live can find.
enum class Seen : u8 { live, free, changing, damaged };
Seen look(const char* block, u8 tag, usize block_bytes, Claim& claim) {
  const char* const trailer = block + block_bytes - kTrailerBytes;
  const u64 word = load_trailer(trailer);
  if (word == 0) return may_end_in_zero(tag, block) ? Seen::free : Seen::damaged;
  if (word == free_word(block)) return Seen::free;
  if (is_changing(block, trailer)) return Seen::changing;
  claim = claim_of(word);
  if (!is_trailer(block, word) || claim.bytes > block_bytes - kTrailerBytes) return Seen::damaged;
  return gap_is_whole(block + claim.bytes, trailer) ? Seen::live : Seen::damaged;
}

// A whole trailer says how many bytes were asked for; the gap shows where the damage begins.
BlockFacts overflow_facts(const char* block, usize block_bytes) {
  const char* const trailer = block + block_bytes - kTrailerBytes;
  const u64 word = load_trailer(trailer);
  const usize bytes = claim_of(word).bytes;
  if (!is_trailer(block, word) || bytes > block_bytes - kTrailerBytes) return {block_bytes};
  return {block_bytes, bytes, first_wrong(block, block + bytes, trailer, 0)};
}

// Whether the block before is really damaged. Another thread may just be changing it (WORDS-1), but not at each of a
// hundred looks.
FREESTONE_RACES inline bool before_is_damaged(const char* block, u8 tag, const SlabBlock& found) {
  if (found.offset == 0) return false;
  const char* const before = block - found.bytes;
  for (int looks = 0; looks < 100; ++looks) {
    if (!damage_before(block, found).any() || is_changing(before, block - kTrailerBytes)) return false;
    const bool is_zero_end = is_zero(load_chunk(block - kSeenBytes) | load_chunk(block - kChunkBytes));
    if (is_zero_end && may_end_in_zero(tag, before)) return false;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);  // each look must load again
  }
  return true;
}

// Fills in `claim` for a live slab block. False: the block is not live, which has been reported.
bool examine(const void* block, u8 tag, const char* invalid, Claim& claim) {
  const ClassInfo& info = class_info(tag);
  SlabBlock found;
  shape_of(address_of(block) - region.base, tag, found);
  const u32 number = block_number(info, found.offset);
  if (usize{number} * info.bytes != found.offset || number >= info.blocks)
    return misuse(invalid, block, facts_inside(tag, block)), false;
  switch (look(static_cast<const char*>(block), tag, info.bytes, claim)) {
    case Seen::live: break;
    case Seen::free:
    case Seen::changing: return misuse("double free", block, info.bytes), false;
    case Seen::damaged:
      return misuse("heap overflow", block, overflow_facts(static_cast<const char*>(block), info.bytes)), false;
  }
  if (before_is_damaged(static_cast<const char*>(block), tag, found))
    misuse("heap overflow before the start", block, found.bytes);
  return true;
}

void* hand_out_any(void* memory, usize bytes, Origin origin) {
  if (!in_window(memory)) {  // null, a mapping, or glibc's: there is no window while the allocator is switched off
    note_mapped(memory, bytes, origin);
    return memory;
  }
  const u8 tag = tag_of(unit_of(memory));
  if (is_slab_tag(tag)) return hand_out(memory, class_info(tag).bytes, bytes, origin);
  return has_record(memory, tag) ? hand_out_large(memory, bytes, origin)
                                 : memory;  // a sampled block ends where a guard begins
}

}  // namespace

FREESTONE_SLOW void* hand_out_written(char* block, usize block_bytes, usize bytes, Origin origin) {
  char* const trailer = trailer_of(block, block_bytes);
  const usize before = block_bytes - kTrailerBytes;  // if all of that is zero, the word behind it was wrong
  misuse("write after free", block, {.block_bytes = block_bytes, .wrong_byte = first_not_zero(block, before)});
  begin_change(block, trailer);
  std::memset(block, 0, before);
  return make_live(block, block_bytes, bytes, origin);
}

__attribute__((noinline)) void clear_and_quarantine_larger(void* block, usize block_bytes) {
  if constexpr (kMitigations.zero_on_free) {
    clear_block(static_cast<char*>(block), block_bytes);
  } else {
    store_trailer(trailer_of(block, block_bytes), free_word(block));
  }
  put_in_quarantine(block, block_bytes);
}

FREESTONE_SLOW void put_in_quarantine_slow(void* block) {
  if (sampling.load_relaxed() == Sampling::every_block) sample_freed(block);
  if (this_thread.cache_offset == 0) return deallocate(block);
  enqueue(thread_cache(), block);
}

__attribute__((noinline)) void deallocate_checked_slow(void* block, usize bytes, Origin origin) {
  if (block == nullptr) return;
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  if (!is_slab_tag(tag))
    return has_record(block, tag) ? deallocate_large(block, tag, bytes, origin)
                                  : deallocate_unrecorded(block, bytes, origin);
  const usize block_bytes = kShapes.of[tag].bytes;
  Claim claim;
  if (!examine(block, tag, "invalid free", claim)) return;
  if (!expect_match(block, block_bytes, claim, bytes, origin)) return;
  clear_and_quarantine(block, block_bytes);
}

FREESTONE_SLOW void* allocate_checked_slow(usize bytes, Origin origin) {
  return hand_out_any(allocate_slow(bytes + kTrailerBytes), bytes, origin);
}

__attribute__((noinline)) void* allocate_above_table(usize bytes, Origin origin) {
  const SizeClass c = class_above_fine(bytes + kTrailerBytes);
  Cache& cache = thread_cache();
  void** top = cache.top[c];
  if (FREESTONE_UNLIKELY(top == cache.low[c])) return allocate_checked_slow(bytes, origin);
  cache.top[c] = top - 1;
  return is_slab_class(c) ? hand_out(top[-1], class_info(c).bytes, bytes, origin)
                          : hand_out_large(top[-1], bytes, origin);
}

__attribute__((noinline)) void* allocate_through_heap(usize bytes, usize alignment, Origin origin) {
  if (bytes > ~usize{0} - kTrailerBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  return hand_out_any(
      alignment <= kGranule ? allocate(bytes + kTrailerBytes) : allocate_aligned(bytes + kTrailerBytes, alignment),
      bytes, origin);
}

FREESTONE_SLOW void* allocate_zero_size(Origin origin) {
  if constexpr (kMitigations.zero_size) {
    if (ensure_started() == Mode::active) {
      if (void* block = take_zero_size(); block != nullptr) return block;
    }
  }
  return allocate_through_heap(0, 1, origin);
}

void* allocate_zeroed_checked(usize bytes) {
  if (bytes > kCachedRequestMax) {
    // A run is often known to be zero: the heap clears the rest, and the end word goes behind it.
    void* block = bytes <= ~usize{0} - kTrailerBytes ? allocate_zeroed(bytes + kTrailerBytes) : nullptr;
    if (block == nullptr) errno = ENOMEM;
    return hand_out_any(block, bytes, Origin::c_call);
  }
  void* block = allocate_checked(bytes, Origin::c_call);
  if (block == nullptr || bytes == 0) return block;
  // HARD-2; what an observer serves apart, and glibc, know nothing of it.
  const bool is_known_clear = kMitigations.zero_on_free && in_window(block) && tag_of(unit_of(block)) < kTagClassEnd;
  if (!is_known_clear) std::memset(block, 0, bytes);
  return block;
}

void* allocate_aligned_checked(usize bytes, usize alignment, Origin origin) {
  return allocate_through_heap(bytes, alignment, with_alignment(origin, alignment));
}

void* allocate_in_partition(usize bytes, usize alignment, Origin origin) {
  if (kPartitions == 1 || bytes - 1 >= kSlabRequestMax) return nullptr;
  if (!is_power_of_two(alignment) || alignment > kUnitBytes) return nullptr;
  const usize wanted = bytes + kTrailerBytes;
  const SizeClass plain = class_of_aligned(wanted, max_of(alignment, kGranule));
  if (plain > kPlainClasses || ensure_started() != Mode::active) return nullptr;
  const SizeClass c = plain + kPartedClasses;
  void* const block = pop(thread_cache(), c, [=] { return allocate_class(c, wanted, alignment); });
  return hand_out_any(block, bytes, with_alignment(origin, alignment));
}
static void* allocate_beside(u8 tag, usize bytes) {
  void* const parted =
      tag > kPlainClasses && is_slab_tag(tag) ? allocate_in_partition(bytes, 1, Origin::c_call) : nullptr;
  return parted != nullptr ? parted : allocate_checked(bytes, Origin::c_call);
}

// Clears what a shrink gives up and the old canary, because a later growth would show them to the program.
static void resize_in_slab(char* block, usize block_bytes, const Claim& claim, usize bytes) {
  char* const trailer = trailer_of(block, block_bytes);
  begin_change(block, trailer);
  const usize gap = block_bytes - kTrailerBytes - bytes,
              longer = max_of(gap, block_bytes - kTrailerBytes - claim.bytes);
  if (FREESTONE_LIKELY(longer <= kNearGap)) {
    char* const near = near_piece(block + block_bytes);
    store_chunk(near, (load_chunk(near) & ~near_mask(longer)) | near_row(gap));
  } else {
    if (bytes > claim.bytes) std::memset(block + claim.bytes, 0, bytes - claim.bytes);
    store_gap(block + bytes, trailer);
  }
  order_stores();  // WORDS-1
  store_trailer(
      trailer,
      trailer_word(block, plain_word(bytes, family_of(claim.origin))));  // realloc promises no alignment of its own
}

// Gives a live slab block, which was checked as a whole, another size.
static void* reallocate_in_slab(void* block, usize block_bytes, const Claim& claim, usize bytes) {
  if (!origins_match(claim.origin, Origin::c_call)) misuse("mismatched realloc", block, block_bytes);
  if (stays_in(block_bytes, bytes + kTrailerBytes)) {
    resize_in_slab(static_cast<char*>(block), block_bytes, claim, bytes);
    return block;
  }
  void* moved = allocate_beside(tag_of(unit_of(block)), bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, min_of(claim.bytes, bytes));
  clear_and_quarantine(block, block_bytes);
  return moved;
}

static void* reallocate_other(void* block, usize bytes) {
  if (mode() == Mode::disabled) return reallocate(block, bytes);
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  usize old_bytes = 0;
  if (is_slab_tag(tag)) {
    Claim claim;
    if (!examine(block, tag, "invalid realloc", claim)) return nullptr;
    return reallocate_in_slab(block, kShapes.of[tag].bytes, claim, bytes);
  }
  if (kMitigations.zero_size && is_zero_size(block)) {
    old_bytes = 0;
  } else if (has_record(block, tag)) {
    Claim claim;
    if (!examine_large(block, claim)) return nullptr;
    if (origins_match(claim.origin, Origin::c_call) && resize_in_place(block, claim, bytes)) return block;
    old_bytes = claim.bytes;
  } else if (!in_window(block) && mapped_block_bytes(block) != 0) {
    const Claim claim = mapped_claim(block);
    old_bytes = mapped_block_bytes(block);
    if (origins_match(claim.origin, Origin::c_call)) {
      sample_freed(block);  // first: afterwards the address may belong to another block
      if (void* resized = resize_large(block, old_bytes, bytes, true); resized != nullptr) {
        note_mapped(resized, bytes, family_of(claim.origin));  // realloc promises no alignment of its own
        sample_resized(resized, bytes);
        return resized;
      }
    }
  } else if (tag == kTagSampled && sampled_block(sampled_first_unit(block)) == block) {
    old_bytes = sampled_bytes(sampled_first_unit(block));
  } else {
    return reallocate(block, bytes);  // no block at all
  }
  void* moved = allocate_checked(bytes, Origin::c_call);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, min_of(old_bytes, bytes));
  deallocate_checked(block, kUnknownBytes, Origin::c_call);
  return moved;
}

void* reallocate_checked(void* block, usize bytes) {
  bytes = min_of<usize>(bytes, PTRDIFF_MAX - kTrailerBytes);  // as impossible, and no sum overflows
  LiveBlock live;
  Chunk gap;
  if (!live_block(block, live) || !short_gap_damage(end_of(block, live), live.gap, gap) ||
      is_damaged(block, live, gap, 0, 0)) {
    return reallocate_other(block, bytes);
  }
  return reallocate_in_slab(block, live.found.bytes, claim_of(live.word), bytes);
}

usize usable_bytes_checked(const void* block) {
  if (block == nullptr) return 0;
  if (mode() != Mode::active) return usable_bytes(block);
  if (kMitigations.zero_size && is_zero_size(block)) return 0;
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  Claim claim{};
  if (is_slab_tag(tag)) return examine(block, tag, "invalid malloc_usable_size", claim) ? claim.bytes : 0;
  if (has_record(block, tag)) return examine_large(block, claim) ? claim.bytes : 0;
  if (tag > kLastSmallClass && tag < kTagClassEnd) {  // inside a class run
    misuse("invalid malloc_usable_size", block, 0);
    return 0;
  }
  const usize bytes = usable_bytes(block);  // it ends the process if this is no block
  return !in_window(block) && mapped_request(block) != 0 ? mapped_claim(block).bytes : bytes;
}

}  // namespace hardened

constinit const HardeningHooks hardening_hooks = {hardened::draw_secrets, hardened::note_fork, hardened::note_child,
                                                  hardened::check_next_part};

}  // namespace freestone
