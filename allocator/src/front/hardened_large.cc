// Room 9, front: see hardened_large.h.

#include "front/hardened_large.h"

#include "config/options.h"
#include "front/large.h"
#include "front/sampled.h"
#include "front/zero_size.h"
#include "platform/os.h"
#include "span/run.h"

namespace freestone::hardened {

namespace {

// A block that shrank has fewer pages than its span.
constexpr u64 kShrunk = u64{1} << (kLargeOriginShift - 1);
constexpr u64 kLargeRequestMask = kShrunk - 1;
FREESTONE_INLINE Claim claim_of_large(u64 request) {
  return {(request & kLargeRequestMask) - 1, static_cast<Origin>(request >> kLargeOriginShift)};
}
FREESTONE_INLINE bool mark_is_whole(const void* block, const Claim& claim) {
  return load_word(static_cast<const char*>(block) + claim.bytes) == large_mark(block, claim.origin);
}

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
  return thread_cache().allowance.take(seal_cost(bytes));
}

}  // namespace

bool examine_large(const void* block, Claim& claim) {
  const u64 request = large_request(block);
  if (FREESTONE_UNLIKELY(request == 0)) {
    misuse("double free", block, freestone::usable_bytes(block));
    return false;
  }
  claim = claim_of_large(request);
  if (FREESTONE_UNLIKELY(!mark_is_whole(block, claim))) misuse("heap overflow", block, claim.bytes);
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

// Says what is wrong with a large block and the call that frees it. False: it stays as it is.
FREESTONE_SLOW static bool explain_large(const void* block, usize bytes, Origin origin) {
  Claim claim;
  if (!examine_large(block, claim)) return false;
  if (!origins_match(claim.origin, origin)) return misuse("mismatched free", block, claim.bytes), false;
  if (bytes != kUnknownBytes && bytes != claim.bytes) return misuse("sized delete with a wrong size", block, claim.bytes), false;
  return true;
}

void deallocate_large(void* block, u8 tag, usize bytes, Origin origin) {
  u64& record = large_request(block);
  const u64 request = record;
  const Claim claim = claim_of_large(request);
  if (FREESTONE_UNLIKELY(request == 0 || !mark_is_whole(block, claim) || !origins_match(claim.origin, origin) ||
                         (bytes != kUnknownBytes && bytes != claim.bytes)) &&
      !explain_large(block, bytes, origin)) {
    return;
  }
  record = 0;
  sample_freed(block);  // by the program; from the quarantine it comes later
  if (FREESTONE_UNLIKELY((request & kShrunk) != 0) && !open_tail(block, claim.bytes)) return;  // never reused
  if (may_seal(claim.bytes)) return seal(block, span_bytes(block));
  if constexpr (kMitigations.zero_on_free) clear_small(static_cast<char*>(block), kClearAlwaysBytes);
  if (tag == kTagRun) return deallocate_run(block);
  Cache& cache = thread_cache();
  void** const top = cache.top[tag];
  if (top == cache.high[tag]) return deallocate_slow(block);
  cache.push(tag, top, block);
}

void deallocate_other(void* block) {
  if (block == nullptr) return;
  if constexpr (kMitigations.zero_size) {
    if (is_zero_size(block)) {
      if (!return_zero_size(block)) misuse("double free", block, 0);
      return;
    }
  }
  // Inside a run, or nothing is there: the heap's fast path does not look.
  if (in_window(block)) {
    const u8 tag = tag_of(unit_of(block));
    if (tag <= kLastClass || tag == kTagGuard) return misuse("invalid free", block, 0);
  }
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
