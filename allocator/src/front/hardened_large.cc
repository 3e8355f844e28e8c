// Room 9, front: see hardened_large.h.

#include "front/hardened_large.h"

#include "config/options.h"
#include "front/sampled.h"
#include "front/zero_size.h"
#include "platform/os.h"
#include "span/run.h"

namespace freestone::hardened {

namespace {

// The request plus one and the origin of a large block share one word; 0: free. A block that shrank has fewer pages than its span.
constexpr unsigned kLargeOriginShift = 56;
constexpr usize kShrunk = usize{1} << (kLargeOriginShift - 1);
constexpr usize kLargeRequestMask = kShrunk - 1;
usize& large_request(const void* block) { return record_of(unit_of(block)).request_bytes; }

// Sealed blocks hold addresses only, so their number needs no bound in bytes.
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

void seal(void* block, usize bytes) {
  if (bytes > kSealedBytesMax) {
    os::purge(block, bytes);
    return freestone::deallocate(block);
  }
  if (os::guard_install(block, bytes)) {
    // A kernel without guards: the memory goes, the addresses stay open.
    if (os::purge(block, bytes)) std::memset(block, 0, bytes);
  }
  const u64 random = mix_bits(sealed_random.fetch_add_relaxed(1) ^ block_secret);
  release_sealed(sealed[random % kSealedPlaces].exchange_seq(address_of(block)));
}

// The whole pages of a run behind a block of so many bytes and its mark.
struct Pages {
  char* from;
  usize bytes;
};
Pages tail_pages(void* block, usize bytes) {
  const usize from = round_up(address_of(block) + bytes + kTrailerBytes, os::page_bytes());
  const usize end = address_of(block) + span_bytes(block);
  return {reinterpret_cast<char*>(from), from < end ? end - from : 0};
}
bool open_tail(void* block, usize bytes) {
  const Pages tail = tail_pages(block, bytes);
  return tail.bytes == 0 || !os::guard_remove(tail.from, tail.bytes);
}

bool may_seal(usize bytes) {
  if constexpr (!kMitigations.quarantine) return false;
  if (bytes < options.seal_bytes) return false;
  if (this_thread.cache_offset == 0) return true;
  return thread_cache().allowance.take(max_of(kSealCost, bytes / 4));
}

}  // namespace

bool has_record(const void* block) {
  if (!in_window(block) || address_of(block) % kUnitBytes != 0) return false;
  const u8 tag = tag_of(unit_of(block));
  return (tag > kLastSmallClass && tag < kTagClassEnd) || tag == kTagRun;
}

void* arm_large(void* block, usize bytes, Origin origin) {
  if (!has_record(block)) return block;  // a mapping: its end is a page's end, and it is gone when freed
  large_request(block) = (bytes + 1) | (usize{static_cast<u8>(origin)} << kLargeOriginShift);
  store_word(static_cast<char*>(block) + bytes, live_word(block, 0, origin));
  return block;
}

bool examine_large(const void* block, Claim& claim) {
  const usize request = large_request(block);
  if (FREESTONE_UNLIKELY(request == 0)) {
    misuse("double free", block, freestone::usable_bytes(block));
    return false;
  }
  claim = {(request & kLargeRequestMask) - 1, static_cast<Origin>(request >> kLargeOriginShift)};
  const u64 mark = load_word(static_cast<const char*>(block) + claim.bytes);
  if (FREESTONE_UNLIKELY(mark != live_word(block, 0, claim.origin))) misuse("heap overflow", block, claim.bytes);
  return true;
}

bool resize_in_place(void* block, const Claim& claim, usize bytes) {
  if constexpr (!kMitigations.guards) return false;
  const usize usable = freestone::usable_bytes(block) - kTrailerBytes;
  if (bytes > usable || bytes < usable / 4 || sampling.load_relaxed() != Sampling::off) return false;
  if ((large_request(block) & kShrunk) != 0 && !open_tail(block, claim.bytes)) return false;
  auto* const start = static_cast<char*>(block);
  const Pages tail = tail_pages(block, bytes);
  const bool sealed_tail = bytes < claim.bytes && tail.bytes > 0 && !os::guard_install(tail.from, tail.bytes);
  // What a shrink gives up, or the old mark alone, is not left where a later growth would show it.
  const usize old_end = claim.bytes + kTrailerBytes;
  const usize open_end = sealed_tail ? min_of(old_end, static_cast<usize>(tail.from - start)) : old_end;
  const usize from = min_of(bytes, claim.bytes);
  if (from < open_end) std::memset(start + from, 0, open_end - from);
  arm_large(block, bytes, claim.origin);
  if (sealed_tail) large_request(block) |= kShrunk;
  return true;
}

void deallocate_other(void* block, usize bytes, Origin origin) {
  if (has_record(block)) {
    Claim claim;
    if (!examine_large(block, claim)) return;
    if (!origins_match(claim.origin, origin)) return misuse("mismatched free", block, claim.bytes);
    if (bytes != kUnknownBytes && bytes != claim.bytes) return misuse("sized delete with a wrong size", block, claim.bytes);
    const bool shrunk = (large_request(block) & kShrunk) != 0;
    large_request(block) = 0;
    sample_freed(block);  // by the program; from the quarantine it comes later
    if (shrunk && !open_tail(block, claim.bytes)) return;  // never reused
    if (may_seal(claim.bytes)) return seal(block, span_bytes(block));
    if constexpr (kMitigations.zero_on_free) {
      for (usize at = 0; at < kClearAlwaysBytes; at += 4 * sizeof(Chunk)) clear_four_chunks(static_cast<char*>(block) + at);
    }
    return freestone::deallocate(block);
  }
  if (block == nullptr) return;
  if constexpr (kMitigations.zero_size) {
    if (is_zero_size(block)) {
      if (!return_zero_size(block)) misuse("double free", block, 0);
      return;
    }
  }
  // Inside a run, or nothing is there: the heap's fast path does not look.
  if (in_window(block) && tag_of(unit_of(block)) <= kLastClass) return misuse("invalid free", block, 0);
  freestone::deallocate(block);
}

void release_all_sealed() {
  for (Atomic<usize>& place : sealed) release_sealed(place.exchange_seq(0));
}

usize readable_bytes(const void* block, usize block_bytes) {
  if constexpr (!kMitigations.trailer) return block_bytes;
  const usize request = large_request(block) & kLargeRequestMask;
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
      counts.run_bytes += units_to_bytes(run_units(unit_of(block)));  // another thread may give it back at this moment
    } else if (tag <= kLastClass) {
      ++counts.class_blocks[tag];
    }
  }
  return counts;
}

}  // namespace freestone::hardened
