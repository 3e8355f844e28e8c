// Room 6, span: see run.h.

#include "span/run.h"

#include <cstring>

#include "base/places.h"
#include "config/heuristics.h"
#include "span/free_memory.h"
#include "span/purge.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

Atomic<usize> runs_out;  // relaxed: statistics
Atomic<usize> units_out;

// Whether a free run is zero (HARD-2).
bool is_emptied(UnitIndex first) { return kMitigations.zero_on_free && record_of(first).run_state != RunState::used; }

void leave(usize units) {
  runs_out.sub_relaxed(1);
  units_out.sub_relaxed(units);
}

// What was cleared keeps its memory.
void return_to_spans(UnitIndex first, usize units) {
  const usize guard = guards_spans() ? 1 : 0;
  const bool is_zero = is_emptied(first);
  if (is_zero) expect_run_clear(unit_address(first), units_to_bytes(units));
  set_tags(first, units, kTagNone);
  if (is_zero) return return_guarded_span(first, units, guard, true);
  return_used_span(first, units, guard);
}

UnitIndex begin_run(UnitIndex first, usize units) {
  if (first == kNoUnit) return kNoUnit;
  set_tag(first, kTagRun);
  set_tags(first + 1, units - 1, kTagInside);
  runs_out.add_relaxed(1);
  units_out.add_relaxed(units);
  record_of(first).run_units = static_cast<u32>(units);
  return first;
}

void put_away(unsigned shard, UnitIndex first, usize units) {
  leave(units);
  if (!is_kept_run(units_to_bytes(units)) || (kMitigations.zero_on_free && !is_emptied(first)) ||
      !store_run(shard, first, units))
    return_to_spans(first, units);
}

}  // namespace

UnitIndex take_run(unsigned shard, usize units, usize alignment, bool& zeroed) {
  const bool may_be_stored = alignment == 1 && is_kept_run(units_to_bytes(units));
  const UnitIndex stored = may_be_stored ? take_stored_run(shard, units) : kNoUnit;
  if (stored != kNoUnit) {
    zeroed = is_emptied(stored);  // whoever hands it out checks that
    return begin_run(stored, units);
  }
  const Span span = take_guarded_span(units, alignment, guards_spans() ? 1 : 0);
  zeroed = span.zeroed;
  if (kMitigations.zero_on_free && span.first != kNoUnit) record_of(span.first).run_state = RunState::fresh;
  return begin_run(span.first, units);
}

UnitIndex take_run_to_grow(usize units) { return begin_run(take_span_to_grow(units, 2 * units).first, units); }

bool return_run(unsigned shard, UnitIndex first) {
  const u32 units = record_of(first).run_units;
  if (units == 0) return false;
  record_of(first).run_units = 0;
  put_away(shard, first, units);
  return true;
}

void move_run(UnitIndex first, void* to) {
  const u32 units = record_of(first).run_units;
  record_of(first).run_units = 0;
  char* const from = unit_address(first);
  bool emptied = true;
  for (usize at = 0; at < units_to_bytes(units); at += kMovedPieceBytes) {
    const usize bytes = min_of(kMovedPieceBytes, units_to_bytes(units) - at);
    std::memcpy(static_cast<char*>(to) + at, from + at, bytes);
    emptied &= purge_range(from + at, bytes, WentBack::surplus);
  }
  leave(units);
  set_tags(first, units, kTagNone);
  return_span(first, units, !emptied);
}

void seal_run(UnitIndex first) {
  const u32 units = record_of(first).run_units;
  leave(units);
  return_sealed_run(first, units);
}

void hold_run(HeldRun& held, unsigned shard, UnitIndex first) {
  const UnitIndex old_first = held.first;
  const u32 old_units = held.units.load_relaxed();
  held.units.store_release(0);
  held.put(first, record_of(first));
  if (old_units != 0) put_away(shard, old_first, old_units);
}

void release_held_run(HeldRun& held) {
  const u32 units = held.units.load_relaxed();
  if (units == 0) return;
  held.units.store_release(0);
  leave(units);
  return_to_spans(held.first, units);
}

bool resize_run(UnitIndex first, usize units) {
  const usize old = run_units(first);
  if (units > old) {
    if (!extend_guarded_span(first, old, units - old, guards_spans() ? 1 : 0)) return false;
    set_tags(first + static_cast<UnitIndex>(old), units - old, kTagInside);
    units_out.add_relaxed(units - old);
  } else if (units < old) {
    if constexpr (kMitigations.guards) return false;  // hardened/large.cc makes the pages behind fault
    const auto tail = first + static_cast<UnitIndex>(units);
    const usize bytes = units_to_bytes(old - units);
    const bool goes = bytes > kSharedRunBytesMax || may_give_back();
    set_tags(tail, old - units, kTagNone);
    units_out.sub_relaxed(old - units);
    return_span(tail, old - units, !goes || !purge_range(unit_address(tail), bytes, WentBack::surplus));
  }
  record_of(first).run_units = static_cast<u32>(units);
  return true;
}

RunCounts run_counts() { return {runs_out.load_relaxed(), units_to_bytes(units_out.load_relaxed())}; }

constinit Places run_places = {&runs_out, &units_out};

}  // namespace freestone
