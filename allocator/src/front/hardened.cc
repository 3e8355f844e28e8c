// Room 9, front: see hardened.h.

#include "front/hardened.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "config/options.h"
#include "front/large.h"
#include "front/sampled.h"
#include "front/zero_size.h"
#include "platform/message.h"
#include "platform/os.h"
#include "span/mapping.h"

namespace freestone {

constinit u64 block_secret = 0;

namespace hardened {

namespace {

constexpr usize kTrailerBytes = sizeof(u64);
constexpr u64 kLive = 0x5afe'a110;  // upper half of a trailer that says live; the lower half holds origin and bytes
constexpr u64 kFree = 0xf4ee'b10c;
constexpr unsigned kOriginShift = 24;
constexpr u8 kPattern = 0xb5;
constexpr usize kPatternMax = 128;  // bytes of pattern that are written and checked

FREESTONE_INLINE u64 key_of(const void* block) { return (address_of(block) ^ block_secret) * 0x9e3779b97f4a7c15ULL; }

FREESTONE_INLINE u64 live_word(const void* block, usize bytes, Origin origin) {
  return ((kLive << 32) | (u64{static_cast<u8>(origin)} << kOriginShift) | bytes) ^ key_of(block);
}
FREESTONE_INLINE u64 free_word(const void* block) { return (kFree << 32) ^ key_of(block); }
FREESTONE_INLINE bool says_live(u64 trailer, const void* block) { return (trailer ^ key_of(block)) >> 32 == kLive; }

struct Claim {
  usize bytes;
  Origin origin;
};
FREESTONE_INLINE Claim claim_of(u64 trailer, const void* block) {
  const u64 plain = trailer ^ key_of(block);
  return {plain & low_mask(kOriginShift), static_cast<Origin>((plain >> kOriginShift) & 0xff)};
}

FREESTONE_INLINE u64 load_word(const char* at) {
  u64 word;
  std::memcpy(&word, at, sizeof word);
  return word;
}
FREESTONE_INLINE void store_word(char* at, u64 word) { std::memcpy(at, &word, sizeof word); }

FREESTONE_INLINE char* trailer_of(void* block, usize block_bytes) { return static_cast<char*>(block) + block_bytes - kTrailerBytes; }

// A misuse was seen. Aborts, unless the program asked for a report only; the caller then leaves the block alone.
FREESTONE_SLOW void misuse(const char* kind, const void* block, usize block_bytes) {
  if (options.on_error == 0) fail_block(kind, block, block_bytes);
  static Atomic<u32> reports;
  constexpr u32 kReportsMax = 100;
  if (reports.fetch_add_relaxed(1) < kReportsMax) (Message() << kind << " of " << block << " (block of " << u64{block_bytes} << " bytes)").write();
}

// 16 bytes at a time, by instructions rather than by a call: most blocks are small.
using Chunk = u64 __attribute__((vector_size(16)));

[[maybe_unused]] FREESTONE_INLINE bool is_clear(const char* from, usize bytes) {
  Chunk any = {};
  usize i = 0;
  for (; i + sizeof(Chunk) <= bytes; i += sizeof(Chunk)) {
    Chunk chunk;
    std::memcpy(&chunk, from + i, sizeof chunk);
    any |= chunk;
  }
  u64 rest = any[0] | any[1];
  if (i < bytes) rest |= load_word(from + bytes - sizeof(u64));
  return rest == 0;
}

// Clears `bytes`, a multiple of 8 and at least 8.
[[maybe_unused]] FREESTONE_INLINE void clear(char* from, usize bytes) {
  constexpr usize kLoopMax = 512;
  if (bytes > kLoopMax) {
    asm("" : "+r"(bytes));  // a call: the compiler would expand it to a string instruction with a slow start
    std::memset(from, 0, bytes);
    return;
  }
  const Chunk zero = {};
  for (usize i = 0; i + sizeof(Chunk) <= bytes; i += sizeof(Chunk)) std::memcpy(from + i, &zero, sizeof zero);
  store_word(from + bytes - sizeof(u64), 0);
}

// A slab block and the facts about it that every check needs.
struct SlabBlock {
  SizeClass size_class = 0;
  usize bytes = 0;
  u32 number = 0;
};

FREESTONE_INLINE bool is_slab_tag(u8 tag) { return tag != kTagNone && tag <= kLastSmallClass; }

// False when `block` is not the start of a block of its slab.
FREESTONE_INLINE bool locate(const void* block, u8 tag, SlabBlock& found) {
  const ClassInfo& info = class_info(tag);
  const usize offset = (address_of(block) - region.base) & (units_to_bytes(info.units) - 1);
  found = {tag, info.bytes, block_number(info, offset)};
  return usize{found.number} * info.bytes == offset && found.number < info.blocks;
}

// The pattern between the bytes asked for and the trailer, in words: a gap of less than a word is the upper part of the word before the
// trailer, whose lower part belongs to the program.
constexpr u64 kPatternWord = 0x0101'0101'0101'0101ULL * kPattern;

FREESTONE_INLINE void fill_pattern(char* from, char* trailer) {
  const auto gap = static_cast<usize>(trailer - from);
  if (gap == 0) return;
  char* const last = trailer - sizeof(u64);
  if (gap < sizeof(u64)) {
    const u64 kept = low_mask(static_cast<unsigned>(64 - gap * 8));
    store_word(last, (load_word(last) & kept) | (kPatternWord & ~kept));
    return;
  }
  const char* const end = from + min_of(gap, kPatternMax);
  for (char* at = from; at + sizeof(u64) <= end; at += sizeof(u64)) store_word(at, kPatternWord);
  store_word(last, kPatternWord);
}

FREESTONE_INLINE bool pattern_is_whole(const char* from, const char* trailer) {
  const auto gap = static_cast<usize>(trailer - from);
  if (gap == 0) return true;
  const char* const last = trailer - sizeof(u64);
  u64 wrong = load_word(last) ^ kPatternWord;
  if (gap < sizeof(u64)) return wrong >> (64 - gap * 8) == 0;
  const char* const end = from + min_of(gap, kPatternMax);
  for (const char* at = from; at + sizeof(u64) <= end; at += sizeof(u64)) wrong |= load_word(at) ^ kPatternWord;
  return wrong == 0;
}

// Makes a block that the heap gave out live. `block_bytes` is the block's size.
FREESTONE_INLINE void* arm(void* memory, usize block_bytes, usize bytes, Origin origin) {
  auto* block = static_cast<char*>(memory);
  char* trailer = trailer_of(block, block_bytes);
  const u64 old = load_word(trailer);
  if (FREESTONE_UNLIKELY(old != 0 && old != free_word(block))) misuse("write after free", block, block_bytes);
  if constexpr (kMitigations.zero_on_free) {
    if (FREESTONE_UNLIKELY(!is_clear(block, min_of(block_bytes - kTrailerBytes, kCheckBytesMax)))) {
      misuse("write after free", block, block_bytes);
      clear(block, block_bytes - kTrailerBytes);
    }
  }
  fill_pattern(block + bytes, trailer);
  store_word(trailer, live_word(block, bytes, origin));
  return block;
}

// Everything that can be known about a live slab block. Null: it is not one, and that has been said. Otherwise its claim.
FREESTONE_INLINE bool examine(void* block, const SlabBlock& found, Claim& claim) {
  const u64 trailer = load_word(trailer_of(block, found.bytes));
  if (FREESTONE_UNLIKELY(!says_live(trailer, block))) {
    const bool freed = trailer == 0 || trailer == free_word(block);
    misuse(freed ? "double free" : "heap overflow", block, found.bytes);
    return false;
  }
  claim = claim_of(trailer, block);
  if (FREESTONE_UNLIKELY(!pattern_is_whole(static_cast<char*>(block) + claim.bytes, trailer_of(block, found.bytes)))) misuse("heap overflow", block, found.bytes);
  if constexpr (kMitigations.neighbours) {
    if (found.number > 0) {
      const char* before = static_cast<char*>(block) - found.bytes;
      const u64 word = load_word(static_cast<char*>(block) - kTrailerBytes);
      if (FREESTONE_UNLIKELY(word != 0 && word != free_word(before) && !says_live(word, before))) misuse("heap overflow before the start", block, found.bytes);
    }
  }
  return true;
}

// free() and realloc() of what came from new are mistakes, and so is the wrong form of delete. What malloc gave may come back through
// delete: a program may replace one form of the operators and not the other.
FREESTONE_INLINE bool origins_match(Origin given, Origin taken) { return given == taken || given == Origin::c_call; }

// What kind of memory an address above the slab classes is.
usize& large_request(const void* block) { return record_of(unit_of(block)).request_bytes; }
bool has_record(const void* block) {
  if (!in_window(block) || address_of(block) % kUnitBytes != 0) return false;
  const u8 tag = tag_of(unit_of(block));
  return (tag > kLastSmallClass && tag < kTagClassEnd) || tag == kTagRun;
}

// The request plus one and the origin of a large block share one word; 0: free.
constexpr unsigned kLargeOriginShift = 56;

void* arm_large(void* block, usize bytes, Origin origin) {
  if (!has_record(block)) return block;  // a mapping: its end is a page's end, and it is gone when freed
  large_request(block) = (bytes + 1) | (usize{static_cast<u8>(origin)} << kLargeOriginShift);
  store_word(static_cast<char*>(block) + bytes, live_word(block, 0, origin));
  return block;
}

// False: the block is not live, and that has been said.
bool examine_large(void* block, Claim& claim) {
  const usize request = large_request(block);
  if (FREESTONE_UNLIKELY(request == 0)) {
    misuse("double free", block, freestone::usable_bytes(block));
    return false;
  }
  claim = {(request & low_mask(kLargeOriginShift)) - 1, static_cast<Origin>(request >> kLargeOriginShift)};
  const u64 mark = load_word(static_cast<char*>(block) + claim.bytes);
  if (FREESTONE_UNLIKELY(mark != live_word(block, 0, claim.origin))) misuse("heap overflow", block, claim.bytes);
  return true;
}

// Freed large blocks lose their memory at once and fault on every access, until others have taken their place in the quarantine. They
// hold addresses only, so the quarantine needs no bound in bytes.
Atomic<usize> sealed[kSealedPlaces];
Atomic<u64> sealed_random;

usize span_bytes(const void* block) {
  const u8 tag = tag_of(unit_of(block));
  return tag == kTagRun ? freestone::usable_bytes(block) : units_to_bytes(class_info(tag).units);
}

void release_sealed(usize address) {
  if (address == 0) return;
  void* block = reinterpret_cast<void*>(address);
  if (os::guard_remove(block, span_bytes(block))) return;  // cannot be opened again: never reused
  freestone::deallocate(block);
}

void deallocate_sealed(void* block) {
  if (span_bytes(block) > kSealedBytesMax) {
    os::purge(block, span_bytes(block));
    return freestone::deallocate(block);
  }
  if (os::guard_install(block, span_bytes(block))) {
    // A kernel without guards: the memory goes, the addresses stay open.
    if (os::purge(block, span_bytes(block))) std::memset(block, 0, span_bytes(block));
  }
  const u64 random = mix_bits(sealed_random.fetch_add_relaxed(1) ^ block_secret);
  release_sealed(sealed[random % kSealedPlaces].exchange_seq(address_of(block)));
}

FREESTONE_SLOW void deallocate_other(void* block, usize bytes, Origin origin) {
  if (block == nullptr) return;
  if constexpr (kMitigations.zero_size) {
    if (is_zero_size(block)) {
      if (!return_zero_size(block)) misuse("double free", block, 0);
      return;
    }
  }
  if (mode() == Mode::active && has_record(block)) {
    Claim claim;
    if (!examine_large(block, claim)) return;
    if (!origins_match(claim.origin, origin)) return misuse("mismatched free", block, claim.bytes);
    if (bytes != kUnknownBytes && bytes != claim.bytes) return misuse("sized delete with a wrong size", block, claim.bytes);
    large_request(block) = 0;
    sample_freed(block);  // by the program; from the quarantine it comes later
    if (kMitigations.quarantine && claim.bytes >= options.seal_bytes) return deallocate_sealed(block);
    if constexpr (kMitigations.zero_on_free) clear(static_cast<char*>(block), kLargeClearBytes);
  } else if (in_window(block) && tag_of(unit_of(block)) <= kLastClass) {
    return misuse("invalid free", block, 0);  // inside a run, or nothing is there: the heap's fast path does not look
  }
  freestone::deallocate(block);
}

FREESTONE_INLINE void quarantine_or_free(void* block, usize block_bytes) {
  if (FREESTONE_UNLIKELY(sampling.load_relaxed() == Sampling::every_block)) sample_freed(block);
  if (this_thread.cache_offset != 0) {
    block = thread_cache().quarantine.exchange(block, block_bytes);
    if (block == nullptr) return;
  }
  freestone::deallocate(block);
}

void* allocate_other(usize bytes, usize alignment, Origin origin) {
  if (bytes > ~usize{0} - kTrailerBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  void* memory = alignment <= kGranule ? freestone::allocate(bytes + kTrailerBytes) : freestone::allocate_aligned(bytes + kTrailerBytes, alignment);
  if (memory == nullptr || mode() != Mode::active) return memory;
  const u8 tag = in_window(memory) ? tag_of(unit_of(memory)) : kTagNone;
  if (is_slab_tag(tag)) return arm(memory, class_info(tag).bytes, bytes, origin);
  return arm_large(memory, bytes, origin);
}

}  // namespace

void release_all_sealed() {
  for (Atomic<usize>& place : sealed) release_sealed(place.exchange_seq(0));
}

usize readable_bytes(const void* block, usize block_bytes) {
  if constexpr (!kMitigations.trailer) return block_bytes;
  const usize request = large_request(block) & low_mask(kLargeOriginShift);
  return request == 0 ? 0 : min_of(request - 1 + kTrailerBytes, block_bytes);
}

SealedCounts sealed_counts() {
  SealedCounts counts{};
  for (const Atomic<usize>& place : sealed) {
    const void* block = reinterpret_cast<const void*>(place.load_relaxed());
    if (block == nullptr) continue;
    const u8 tag = tag_of(unit_of(block));
    if (tag == kTagRun) {
      ++counts.runs;
      counts.run_bytes += freestone::usable_bytes(block);
    } else if (tag <= kLastClass) {
      ++counts.class_blocks[tag];
    }
  }
  return counts;
}

void* allocate(usize bytes, Origin origin) {
  if constexpr (kMitigations.zero_size) {
    if (FREESTONE_UNLIKELY(bytes == 0)) {
      if (ensure_started() == Mode::active) {
        if (void* block = take_zero_size(); block != nullptr) return block;
      }
    }
  }
  if constexpr (!kMitigations.trailer) return freestone::allocate(bytes);
  if (FREESTONE_LIKELY(bytes <= kSmallBytesMax - kTrailerBytes)) {
    void* memory = freestone::allocate(bytes + kTrailerBytes);
    const u8 tag = in_window(memory) ? tag_of(unit_of(memory)) : kTagNone;
    if (FREESTONE_LIKELY(is_slab_tag(tag))) return arm(memory, class_info(tag).bytes, bytes, origin);
    return memory != nullptr && in_window(memory) ? arm_large(memory, bytes, origin) : memory;
  }
  return allocate_other(bytes, 1, origin);
}

void* allocate_zeroed(usize bytes) {
  if (bytes > kCachedBytesMax) {
    // Large memory is often known to be zero: the heap clears what is not, and the mark goes behind it.
    void* block = bytes <= ~usize{0} - kTrailerBytes ? freestone::allocate_zeroed(bytes + kTrailerBytes) : nullptr;
    if (block == nullptr) errno = ENOMEM;
    return block == nullptr || mode() != Mode::active ? block : arm_large(block, bytes, Origin::c_call);
  }
  void* block = allocate(bytes, Origin::c_call);
  if (block == nullptr || bytes == 0) return block;
  if (!kMitigations.zero_on_free || bytes > kCheckBytesMax || mode() != Mode::active) std::memset(block, 0, bytes);
  return block;
}

void* allocate_aligned(usize bytes, usize alignment, Origin origin) {
  if constexpr (!kMitigations.trailer) return freestone::allocate_aligned(bytes, alignment);
  return allocate_other(bytes, alignment, origin);
}

void deallocate(void* block, usize bytes, Origin origin) {
  if constexpr (!kMitigations.trailer) return freestone::deallocate(block);
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  if (FREESTONE_UNLIKELY(!is_slab_tag(tag))) return deallocate_other(block, bytes, origin);
  SlabBlock found;
  if (FREESTONE_UNLIKELY(!locate(block, tag, found))) return misuse("invalid free", block, found.bytes);
  Claim claim;
  if (FREESTONE_UNLIKELY(!examine(block, found, claim))) return;
  if (FREESTONE_UNLIKELY(!origins_match(claim.origin, origin))) return misuse("mismatched free", block, found.bytes);
  if (FREESTONE_UNLIKELY(bytes != kUnknownBytes && bytes != claim.bytes)) return misuse("sized delete with a wrong size", block, found.bytes);
  if constexpr (kMitigations.zero_on_free) clear(static_cast<char*>(block), found.bytes - kTrailerBytes);
  store_word(trailer_of(block, found.bytes), free_word(block));
  quarantine_or_free(block, found.bytes);
}

void* reallocate(void* block, usize bytes) {
  if (mode() == Mode::disabled || !kMitigations.trailer) return freestone::reallocate(block, bytes);
  const u8 tag = in_window(block) ? tag_of(unit_of(block)) : kTagNone;
  usize old_bytes = 0;
  if (is_slab_tag(tag)) {
    SlabBlock found;
    Claim claim;
    if (!locate(block, tag, found)) {
      misuse("invalid realloc", block, found.bytes);
      return nullptr;
    }
    if (!examine(block, found, claim)) return nullptr;
    if (!origins_match(claim.origin, Origin::c_call)) misuse("mismatched realloc", block, found.bytes);
    old_bytes = claim.bytes;
    if (bytes + kTrailerBytes <= found.bytes && bytes + kTrailerBytes > found.bytes / 2) {
      auto* start = static_cast<char*>(block);
      // What a shrink gives up is cleared by the pattern; what a growth gains is the old pattern's place.
      fill_pattern(start + bytes, trailer_of(block, found.bytes));
      store_word(trailer_of(block, found.bytes), live_word(block, bytes, claim.origin));
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
  if (is_slab_tag(tag)) {
    SlabBlock found;
    if (!locate(block, tag, found)) {
      misuse("invalid malloc_usable_size", block, found.bytes);
      return 0;
    }
    return examine(const_cast<void*>(block), found, claim) ? claim.bytes : 0;
  }
  if (has_record(block)) return examine_large(const_cast<void*>(block), claim) ? claim.bytes : 0;
  return freestone::usable_bytes(block);
}

}  // namespace hardened
}  // namespace freestone
