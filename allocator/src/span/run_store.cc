// Room 6, span: see run_store.h.

#include "span/run_store.h"

#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "config/heuristics.h"
#include "platform/os.h"
#include "region/account.h"
#include "span/free_memory.h"
#include "span/purge.h"
#include "span/retired.h"
#include "span/span_map.h"

namespace freestone {

namespace {

// Each group of threads has a row for each length that class runs and slabs have, and one for each doubling above.
constexpr usize kExactUnits = kCachedBytesMax >> kUnitShift;
constexpr unsigned kRows = kExactUnits + highest_bit(kSharedRunBytesMax / kCachedBytesMax);
constexpr unsigned kSets = 4;
constexpr unsigned kRowPlaces = 8;
static_assert(kSets * kRows <= 64);

// A place holds first | units << 32 | time << 48 in one word, so that they are exchanged together; 0: empty. The time
// is in steps of kStoredAgeMs of worked_ms. In the ring the length takes the time's bits too.
struct alignas(64) Row {
  Atomic<u64> place[kRowPlaces];
};
Row rows[kSets * kRows];
Atomic<u64> rows_in_use;  // a bit for each row: set where it may hold an entry
constexpr unsigned kStampShift = 48;

// The addresses of closed runs.
FREESTONE_FAR Atomic<u64> ring[kWaitingSpans];
Atomic<u64> came;  // relaxed, as `left`: what entered and what left the ring since the start
Atomic<u64> left;
Atomic<usize> closed_units;  // relaxed: a bound

UnitIndex first_of(u64 entry) { return static_cast<UnitIndex>(entry); }
usize units_of(u64 entry) { return entry >> 32 & low_mask(kStampShift - 32); }
u64 now_stamp() { return worked_ms.load_relaxed() / kStoredAgeMs & low_mask(64 - kStampShift); }

unsigned row_of(unsigned shard, usize units) {
  const usize row = units <= kExactUnits ? units - 1 : kExactUnits + highest_bit((units - 1) / kExactUnits);
  return static_cast<unsigned>(shard % kSets * kRows + row);
}
// In the hardened build the first half of such a row's places is for what only a later entry pushes out, to the other
// places, from which it is taken.
constexpr unsigned kWaitingRuns = kRowPlaces / 2;
constexpr unsigned kFirstReady = kMitigations.quarantine ? kWaitingRuns : 0;
bool is_short(unsigned row) { return row % kRows < kExactUnits; }

bool fits(usize units) {
  const usize kept = kept_units.load_relaxed() + units;
  return options.dirty_decay_ms != 0 && units_to_bytes(kept) <= options.dirty_bytes &&
         kept <= keepable_units.load_relaxed();
}

// In the hardened build the addresses of a run with a class's length serve that length again: what finds no place above
// is closed and waits here. Its record's run_units is the length with the guard.
FREESTONE_FAR constinit RetiredChain retired[kExactUnits + 1] FREESTONE_GUARDED_BY(span_lock);

bool retires(usize units) { return kMitigations.quarantine && units <= kExactUnits; }

bool retire(UnitIndex first, usize units) {
  if (!retires(units) || !guards_spans() || is_limited() || !close_units(first, units, GuardOf::free_memory))
    return false;
  note_purge(true);
  note_back(WentBack::hardening, units_to_bytes(units));
  const UnitIndex behind = first + static_cast<UnitIndex>(units);
  const usize all = units + (tag_of(behind) == kTagGuard ? 1 : 0);
  uncharge(units_to_bytes(all));
  record_of(first).run_units = static_cast<u32>(all);
  LockGuard guard(span_lock);
  span_map.begin_wait(all);
  retired[units].push(first);
  return true;
}

UnitIndex take_retired(usize units) {
  UnitIndex first = kNoUnit;
  {
    LockGuard guard(span_lock);
    first = retired[units].pop();
  }
  if (first == kNoUnit) return kNoUnit;
  Record& record = record_of(first);
  const usize all = record.run_units;
  const bool charged = charge(units_to_bytes(all));
  const bool opened = charged && open_units(first, units);
  if (charged && !opened) uncharge(units_to_bytes(all));
  LockGuard guard(span_lock);
  if (!opened) return retired[units].push(first), kNoUnit;
  record.run_units = 0;
  record.run_state = RunState::fresh;
  span_map.end_wait(all);
  note_taken(first, units);
  return first;
}

void release(u64 entry) {
  if (entry == 0) return;
  const UnitIndex first = first_of(entry);
  const usize units = units_of(entry);
  kept_units.sub_relaxed(units);
  expect_run_clear(unit_address(first), units_to_bytes(units));
  if (retire(first, units)) return;
  set_tags(first, units, kTagNone);
  return_guarded_span(first, units, guards_spans() ? 1 : 0, true);
}

// Entries at least so old become free units; in the hardened build short ones only with `all`.
void empty_rows(u64 in_use, u64 age_ms, bool all) {
  for (const u64 now = now_stamp(); in_use != 0; in_use &= in_use - 1) {
    const unsigned row = lowest_bit(in_use);
    for (Atomic<u64>& place : rows[row].place) {
      // Seq, as both steps of store_run: either this sees the entry, or that sees the bit cleared and sets it.
      const u64 entry = place.load_seq();
      const u64 age = (now - (entry >> kStampShift)) & low_mask(64 - kStampShift);
      if (entry != 0 && (all || !kMitigations.quarantine || !is_short(row)) && age * kStoredAgeMs >= age_ms)
        release(place.exchange_seq(0));
    }
  }
}

void free_closed(u64 entry) {
  if (entry == 0) return;
  const UnitIndex first = first_of(entry);
  const usize units = entry >> 32;
  closed_units.sub_relaxed(units);
  if (tag_of(first) != kTagGuard) note_closed_units(first, units);
  FREESTONE_CHECK("RUNS-1", all_tagged(first, units, kTagGuard));
  LockGuard guard(span_lock);
  span_map.free_waiting(first, units);
}

// Addresses count against limits of the system, which a program may need for itself.
bool is_ring_full() {
  return units_to_bytes(closed_units.load_relaxed()) > min_of(kWaitingBytes, system_limit_bytes() / 8);
}

void put_in_ring(UnitIndex first, usize units) {
  uncharge(units_to_bytes(units));
  Surplus due;
  {
    LockGuard guard(span_lock);
    span_map.begin_wait(units);
    due = surplus_after_return(units);
  }
  if (FREESTONE_UNLIKELY(due.units > 0)) purge_units(due);
  closed_units.add_relaxed(units);
  free_closed(ring[came.fetch_add_relaxed(1) % kWaitingSpans].exchange_seq(u64{first} | u64{units} << 32));
  for (unsigned tries = 0; tries < kWaitingSpans && is_ring_full(); ++tries)
    free_closed(ring[left.fetch_add_relaxed(1) % kWaitingSpans].exchange_seq(0));
}

}  // namespace

bool store_run(unsigned shard, UnitIndex first, usize units) {
  const unsigned row = row_of(shard, units);
  if (!kMitigations.quarantine && !fits(units)) return false;
  u64 entry = u64{first} | u64{units} << 32 | now_stamp() << kStampShift;
  kept_units.add_relaxed(units);
  if (kMitigations.quarantine) entry = rows[row].place[span_random(kWaitingRuns)].exchange_seq(entry);
  if (entry != 0 && (!kMitigations.quarantine || is_short(row) || fits(0))) {
    usize at = kFirstReady;
    while (at < kRowPlaces && rows[row].place[at].load_relaxed() != 0) ++at;
    if (at == kRowPlaces) at = kFirstReady + (kMitigations.quarantine ? span_random(kRowPlaces - kWaitingRuns) : 0);
    entry = rows[row].place[at].exchange_seq(entry);
  }
  if ((rows_in_use.load_seq() & bit(row)) == 0) rows_in_use.or_seq(bit(row));
  release(entry);
  return true;
}

UnitIndex take_stored_run(unsigned shard, usize units, usize alignment) {
  const unsigned row = row_of(shard, units);
  const bool is_used = (rows_in_use.load_relaxed() & bit(row)) != 0;
  for (unsigned k = kFirstReady; is_used && k < kRowPlaces; ++k) {
    Atomic<u64>& place = rows[row].place[k];
    u64 entry = place.load_relaxed();
    if (units_of(entry) != units || first_of(entry) % alignment != 0 || !place.replace_seq(entry, 0)) continue;
    kept_units.sub_relaxed(units);
    return first_of(entry);
  }
  return retires(units) && alignment == 1 ? take_retired(units) : kNoUnit;
}

bool has_stored_runs() { return !kMitigations.quarantine && rows_in_use.load_relaxed() != 0; }

void release_stored_runs() {
  if (rows_in_use.load_relaxed() != 0) empty_rows(rows_in_use.exchange_seq(0), 0, true);
}

void age_stored_runs() { empty_rows(rows_in_use.load_relaxed(), options.dirty_decay_ms / 2, false); }

void release_retired_runs() {
  if constexpr (!kMitigations.quarantine) return;
  for (usize units = 1; units <= kExactUnits; ++units) {
    for (;;) {
      LockGuard guard(span_lock);
      const UnitIndex first = retired[units].pop();
      if (first == kNoUnit) break;
      span_map.free_waiting(first, record_of(first).run_units);
    }
  }
}

void flush_stored_runs() {
  release_stored_runs();
  if (closed_units.load_relaxed() == 0) return;
  for (Atomic<u64>& place : ring) free_closed(place.exchange_seq(0));
}

// Units that fault wait in the ring, and the guard behind them with them, or become free.
static void return_closed_run(UnitIndex first, usize units, usize guard, bool to_ring) {
  note_purge(true);
  note_back(WentBack::hardening, units_to_bytes(units));
  const UnitIndex behind = first + static_cast<UnitIndex>(units);
  const bool is_guard = guard > 0 && tag_of(behind) == kTagGuard;
  if (to_ring) {
    put_in_ring(first, units + (is_guard ? 1 : 0));
  } else {
    purge_budget.went_back(units_to_bytes(units));
    if (tag_of(first) != kTagGuard) note_closed_units(first, units);
    return_span(first, units, false);
  }
  if (guard > 0 && !(to_ring && is_guard)) return_span(behind, guard, !is_guard);
}

void return_used_span(UnitIndex first, usize units, usize guard) {
  bool dirty = true;
  if constexpr (kMitigations.zero_on_free) {
    const usize bytes = units_to_bytes(units);
    if (guards_spans() && close_units(first, units, GuardOf::free_memory)) {
      const bool to_ring = kMitigations.quarantine && bytes > kSharedRunBytesMax && !region.reserved && !is_limited();
      return return_closed_run(first, units, guard, to_ring);
    }
    dirty = !purge_range(unit_address(first), bytes, WentBack::hardening);
    if (dirty) std::memset(unit_address(first), 0, bytes);
  }
  return_guarded_span(first, units, guard, dirty);
}

void return_sealed_run(UnitIndex first, usize units) {
  const usize guard = guards_spans() ? 1 : 0;
  if (close_range(unit_address(first), units_to_bytes(units)))
    return return_closed_run(first, units, guard, !region.reserved);
  set_tags(first, units, kTagNone);
  return_used_span(first, units, guard);
}

}  // namespace freestone
