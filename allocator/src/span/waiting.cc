// Room 6, span: see waiting.h.

#include "span/waiting.h"

#include "base/check.h"
#include "region/account.h"
#include "span/purge.h"
#include "span/span_map.h"

namespace freestone {

namespace {

// A place holds first | units << 32; 0: empty. `came` and `left` count what entered and what left since the start.
FREESTONE_FAR Atomic<u64> ring[kWaitingSpans];
Atomic<u64> came;   // relaxed, like `left`: each number belongs to one thread
Atomic<u64> left;
Atomic<usize> units_inside;  // relaxed: a bound

u64 units_of(u64 span) { return span >> 32; }

void give_back(u64 span) {
  if (span == 0) return;
  const auto first = static_cast<UnitIndex>(span);
  const usize units = units_of(span);
  units_inside.sub_relaxed(units);
  FREESTONE_CHECK("WAITING-1", all_tagged(first, units, kTagGuard));
  LockGuard guard(span_lock);
  span_map.free_waiting(first, units);
}

void release_oldest() { give_back(ring[left.fetch_add_relaxed(1) % kWaitingSpans].exchange_seq(0)); }

}  // namespace

bool may_wait() { return kMitigations.quarantine && !region.reserved && !is_limited(); }

void begin_wait(usize units) {
  uncharge(units_to_bytes(units));
  Surplus due;
  {
    LockGuard guard(span_lock);
    span_map.begin_wait(units);
    due = surplus_after_return(units);
  }
  if (FREESTONE_UNLIKELY(due.units > 0)) purge_units(due);
}

void wait_closed_span(UnitIndex first, usize units) {
  begin_wait(units);
  units_inside.add_relaxed(units);
  give_back(ring[came.fetch_add_relaxed(1) % kWaitingSpans].exchange_seq(u64{first} | u64{units} << 32));
  const auto is_full = [] { return units_to_bytes(units_inside.load_relaxed()) > kWaitingBytes; };
  for (unsigned tries = 0; tries < kWaitingSpans && is_full(); ++tries) release_oldest();
}

void release_waiting_spans() {
  if (units_inside.load_relaxed() == 0) return;
  for (Atomic<u64>& place : ring) give_back(place.exchange_seq(0));
}

}  // namespace freestone
