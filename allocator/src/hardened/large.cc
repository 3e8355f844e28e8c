// Room 10, hardened: see large.h.

#include "hardened/large.h"

#include "config/heuristics.h"
#include "config/options.h"
#include "front/large.h"
#include "front/replaced_operators.h"
#include "front/sampled.h"
#include "hardened/zero_size.h"
#include "platform/os.h"
#include "region/guarding.h"
#include "slab/class_run.h"
#include "span/free_memory.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/run.h"
#include "span/run_store.h"

namespace freestone::hardened {

namespace {

constexpr u64 kLargeRequestMask = kShrunk - 1;
constexpr u64 large_request_of(usize bytes, Origin origin) {
  return (bytes + 1) | (u64{static_cast<u8>(origin)} << kLargeOriginShift);
}
FREESTONE_INLINE Claim claim_of_large(u64 request) {
  return {(request & kLargeRequestMask) - 1, static_cast<Origin>(request >> kLargeOriginShift)};
}
usize span_bytes(const void* block) {
  const u8 tag = tag_of(unit_of(block));
  return tag == kTagRun ? usable_bytes(block) : units_to_bytes(class_info(tag).units);
}

// Behind a block's bytes: a keyed word and canaries, to the end of a page.
struct Behind {
  char* from;
  char* end;
};
Behind behind(const void* block, usize bytes, u64 shrunk) {
  const usize least = shrunk != 0 ? kTrailerBytes : 64;  // the next page may be a guard
  char* const start = static_cast<char*>(const_cast<void*>(block));
  return {start + bytes, start + min_of(round_up(bytes + least, 4 * kKiB), span_bytes(block))};
}
u64 end_word_of(const void* block, Origin origin) {
  return check_product(block, plain_word(0, origin)) & ~low_mask(kPlainBits);
}
bool end_is_whole(const void* block, const Claim& claim) {
  const Behind zone = behind(block, claim.bytes, large_request(block) & kShrunk);
  return load_word(zone.from) == end_word_of(block, claim.origin) &&
         canaries_are_whole(zone.from + kTrailerBytes, zone.end);
}
// The keyed word begins with a zero byte. If only the word is wrong, the damage begins at the block's end.
BlockFacts overflow_facts(const void* block, const Claim& claim) {
  const Behind zone = behind(block, claim.bytes, large_request(block) & kShrunk);
  if (load_word(zone.from) != end_word_of(block, claim.origin)) return {claim.bytes, claim.bytes, claim.bytes};
  return {claim.bytes, claim.bytes,
          first_wrong(static_cast<const char*>(block), zone.from + kTrailerBytes, zone.end, block_secrets.canary)};
}
// A fork may happen between any two of these stores: the record calls a block live only while its end is whole.
void set_live(void* block, usize bytes, Origin origin, u64 shrunk) {
  const Behind zone = behind(block, bytes, shrunk);
  store_word(zone.from, end_word_of(block, origin));
  store_canaries(zone.from + kTrailerBytes, zone.end);
  order_stores();  // WORDS-1
  large_request(block) = large_request_of(bytes, origin) | shrunk;
}

// The whole pages of a run behind a block of so many bytes and its end word. None where a page may reach into other
// runs.
struct Pages {
  char* from;
  usize bytes;
};
Pages tail_pages(void* block, usize bytes) {
  const usize from = round_up(address_of(block) + bytes + kTrailerBytes, os::page_bytes());
  const usize end = address_of(block) + span_bytes(block);
  return {reinterpret_cast<char*>(from), from < end && os::page_bytes() <= kUnitBytes ? end - from : 0};
}
bool open_tail(void* block, usize bytes) {
  const Pages tail = tail_pages(block, bytes);
  return tail.bytes == 0 || open_range(tail.from, tail.bytes);
}

// Lengthens a block's span where it is.
bool grow(void* block, usize bytes) {
  const u8 tag = tag_of(unit_of(block));
  const usize span = bytes + kTrailerBytes;
  if (tag != kTagRun) return resize_class_run(block, tag, span);
  return span <= kRunBytesMax && resize_run(unit_of(block), bytes_to_units(span));
}

// What seals cost so far, less what was earned. Relaxed: two threads at once may spend a seal more.
struct Allowance {
  Atomic<usize> spent_bytes;
  Atomic<u64> last_ms;
  Atomic<u32> refusals;  // stays 0 without a rate: then nothing is refused
};
Allowance allowance;

// Whether the allowance has so many bytes: a stock at first, then an amount per millisecond. A refusal looks at the
// clock once in kSealsPerClock times.
bool take_allowance(usize bytes) {
  const auto take = [bytes](usize spent) {
    if (spent + bytes > kAllowanceStock) return false;
    allowance.spent_bytes.store_relaxed(spent + bytes);
    return true;
  };
  const usize spent = allowance.spent_bytes.load_relaxed();
  if (FREESTONE_LIKELY(take(spent))) return true;
  if (FREESTONE_LIKELY(allowance.refusals.fetch_add_relaxed(1) % kSealsPerClock != 0)) return false;
  const u64 rate = options.hardening_rate;
  if (rate == 0) {
    allowance.refusals.store_relaxed(0);
    return true;
  }
  const u64 now = os::coarse_milliseconds(), last = allowance.last_ms.load_relaxed();
  allowance.last_ms.store_relaxed(now);
  return take(spent - min_of<u64>(spent, last == 0 ? 0 : (now - last) * rate));
}

// Whether the program seems to have used little of a run, judged by some of its pages.
bool is_hardly_used(const char* block, usize used) {
  const usize step = used / kPagesTried;
  const usize page = os::page_bytes();
  for (usize at = round_down(step / 2, page); at + page <= used; at += step) {
    if (!is_clear(block + round_down(at, page), page)) return false;
  }
  return true;
}

// To seal a large run, or one that was hardly used, costs no more than to clear it and to look at it.
bool may_seal(const char* block, usize bytes, usize span) {
  if (!kMitigations.quarantine || !guards_spans() || bytes + kTrailerBytes <= options.seal_bytes) return false;
  return span > kSharedRunBytesMax || is_hardly_used(block, bytes) || this_thread.cache_offset == 0 ||
         take_allowance(seal_cost(bytes));
}

}  // namespace

void* hand_out_large(void* block, usize bytes, Origin origin) {
  Record& record = record_of(unit_of(block));
  if constexpr (kMitigations.zero_on_free) {
    const bool was_used = tag_of(unit_of(block)) == kTagRun && record.run_state == RunState::used;
    if (!was_used) expect_run_clear(block, span_bytes(block));
    record.run_state = RunState::used;
  }
  set_live(block, bytes, origin, 0);
  return block;
}

bool examine_large(const void* block, Claim& claim) {
  const u64 request = large_request(block);
  if (FREESTONE_UNLIKELY(request == 0)) {
    misuse("double free", block, usable_bytes(block));
    return false;
  }
  claim = claim_of_large(request);
  if (FREESTONE_UNLIKELY(!end_is_whole(block, claim))) misuse("heap overflow", block, overflow_facts(block, claim));
  return true;
}

bool resize_in_place(void* block, const Claim& claim, usize bytes) {
  if constexpr (!kMitigations.guards) return false;
  const usize usable = usable_bytes(block) - kTrailerBytes;
  if (bytes < usable / 4 || sampling.load_relaxed() != Sampling::off) return false;
  const u64 request = large_request(block), was_shrunk = request & kShrunk;
  if (was_shrunk != 0 && (bytes > usable || !open_tail(block, claim.bytes))) return false;
  auto* const start = static_cast<char*>(block);
  const Behind old_behind = behind(block, claim.bytes, was_shrunk);
  large_request(block) = 0;
  order_stores();  // WORDS-1
  if (bytes > usable && !grow(block, bytes)) {
    large_request(block) = request;
    return false;
  }
  const Pages tail = tail_pages(block, bytes);
  const bool sealed_tail =
      bytes < claim.bytes && tail.bytes > 0 && guards_spans() && close_range(tail.from, tail.bytes);
  // Clears what a shrink gives up and what stood behind the old end, because a later growth would show them.
  const usize old_end = static_cast<usize>(old_behind.end - start);
  const usize open_end = sealed_tail ? min_of(old_end, static_cast<usize>(tail.from - start)) : old_end;
  const usize from = min_of(bytes, claim.bytes);
  if (from < open_end) std::memset(start + from, 0, open_end - from);
  set_live(block, bytes, family_of(claim.origin),
           sealed_tail ? kShrunk : 0);  // realloc promises no alignment of its own
  return true;
}

// Reports what is wrong with a large block or with the call that frees it. False: the block stays as it is.
FREESTONE_SLOW static bool explain_large(const void* block, usize bytes, Origin origin) {
  Claim claim;
  if (!examine_large(block, claim)) return false;
  return expect_match(block, claim.bytes, claim, bytes, origin);
}

// Whether a block of malloc may be what an operator new was asked for in so many bytes, while a tool was there.
static bool was_passed_on(const Claim& claim, usize bytes, Origin origin) {
  const usize alignment = max_of(usize{1} << alignment_of(origin), kGranule);
  return operators_passed_on.load_relaxed() != 0 && family_of(claim.origin) == Origin::c_call && bytes < claim.bytes &&
         claim.bytes <= bytes_passed_on(bytes, alignment);
}

bool expect_match(const void* block, usize block_bytes, const Claim& claim, usize bytes, Origin origin) {
  const char* wrong = nullptr;
  const bool in_own_delete =
      family_of(origin) == Origin::c_call && (operators_are_replaced() || operators_pass_on(false));
  if (!origins_match(claim.origin, origin) && !in_own_delete) {
    wrong = "mismatched free";
  } else if (bytes != kUnknownBytes && bytes != claim.bytes && !was_passed_on(claim, bytes, origin)) {
    wrong = "sized delete with a wrong size";
  } else if (!alignments_match(claim.origin, origin, bytes)) {
    wrong = "free with a wrong alignment";
  }
  if (wrong != nullptr) misuse(wrong, block, block_bytes);
  return wrong == nullptr;
}

void deallocate_large(void* block, u8 tag, usize bytes, Origin origin) {
  u64& record = large_request(block);
  const u64 request = record;
  const Claim claim = claim_of_large(request);
  if (FREESTONE_UNLIKELY(request == 0 || !end_is_whole(block, claim) || claim.origin != origin ||
                         (bytes != kUnknownBytes && bytes != claim.bytes)) &&
      !explain_large(block, bytes, origin)) {
    return;
  }
  record = 0;
  sample_freed(block);  // the program freed it; the quarantine returns it later
  if (FREESTONE_UNLIKELY((request & kShrunk) != 0) && !open_tail(block, claim.bytes)) return;  // never reused
  const usize span = span_bytes(block);
  const UnitIndex first = unit_of(block);
  auto* const start = static_cast<char*>(block);
  if (may_seal(start, claim.bytes, span)) return tag == kTagRun ? seal_run(first) : seal_class_run(tag, first);
  if (kMitigations.zero_on_free && span <= kSharedRunBytesMax) {  // HARD-2: a freed run is zero while it waits
    record_of(first).run_state = RunState::cleared;
    clear(start, static_cast<usize>(behind(block, claim.bytes, request & kShrunk).end - start));
  }
  tag == kTagRun ? deallocate_run(block) : return_cleared_class_run(tag, thread_cache().user.shard, first);
}

void note_mapped(const void* block, usize bytes, Origin origin) {
  set_mapped_request(block, large_request_of(bytes, origin));
}

Claim mapped_claim(const void* block) {
  const u64 request = mapped_request(block);
  return request == 0 ? Claim{} : claim_of_large(request);
}

void deallocate_unrecorded(void* block, usize bytes, Origin origin) {
  if (block == nullptr) return;
  if constexpr (kMitigations.zero_size) {
    if (is_zero_size(block)) {
      if (!return_zero_size(block)) misuse("double free", block, 0);
      return;
    }
  }
  // An address inside a run, or where nothing is allocated: the heap's fast path would not check it.
  if (in_window(block)) {
    const u8 tag = tag_of(unit_of(block));
    if (tag <= kLastClass || tag == kTagGuard) return misuse("invalid free", block, 0);
  } else if (mapped_request(block) != 0) {
    const Claim claim = mapped_claim(block);
    if (!expect_match(block, claim.bytes, claim, bytes, origin)) return;
  }
  deallocate(block);
}

usize readable_bytes(const void* block, usize block_bytes) {
  if constexpr (!kChecksEveryCall) return block_bytes;
  const usize request = large_request(block) & kLargeRequestMask;
  return request == 0 ? 0 : min_of(request - 1 + kTrailerBytes, block_bytes);
}

}  // namespace freestone::hardened
