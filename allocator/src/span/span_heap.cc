// Room 6, span: see span_heap.h.

#include "span/span_heap.h"

#include <cstring>

#include "base/bits.h"
#include "base/check.h"
#include "config/heuristics.h"
#include "platform/os.h"
#include "policy/policy.h"
#include "region/account.h"
#include "region/guarding.h"
#include "span/free_memory.h"
#include "span/purge.h"
#include "span/run_store.h"
#include "span/span_map.h"

namespace freestone {

namespace {

// Takes the units that a search found. The caller has charged for the clean ones; the dirty ones were charged for
// before. Sets `surplus` to what is now due to go back.
Span take_found(UnitIndex first, usize units, Surplus& surplus) FREESTONE_REQUIRES(span_lock) {
  Span span{.first = first};
  if constexpr (kMitigations.zero_on_free) span.dirty = span_map.dirty_bits(first, units);
  const usize dirty = span_map.set_taken(first, units);
  span.zeroed = dirty == 0;
  surplus = surplus_after_take(first, units, dirty);
  return span;
}

// Takes free units. Finds none if there is no room, or if the limit refuses: then sets `refused`.
Span take_free(usize units, usize alignment, bool& refused, Surplus& surplus, usize room = 0) {
  // Dirty memory in the store does as well as clean memory.
  bool release_first = has_stored_runs();
  for (;; release_first = false) {
    {
      LockGuard guard(span_lock);
      UnitIndex first = room > units ? span_map.find(room, alignment) : kNoUnit;
      if (first == kNoUnit) first = span_map.find(units, alignment);
      const usize dirty = first != kNoUnit ? span_map.count_dirty(first, units) : 0;
      if (!release_first || (first != kNoUnit && dirty == units)) {
        if (first == kNoUnit) return {};
        refused = !charge(units_to_bytes(units - dirty));
        return refused ? Span{} : take_found(first, units, surplus);
      }
    }
    release_stored_runs();
  }
}

// The units that the frontier has passed are in the map from here on.
void add_grown() FREESTONE_REQUIRES(growth_lock, span_lock) {
  span_map.add(unadded.first, unadded.units);
  order_stores();
  unadded.units = 0;  // FORK-5
}

// By a thread that a fork cut short.
void finish_cut_growth() FREESTONE_REQUIRES(growth_lock) {
  if (FREESTONE_LIKELY(unadded.units == 0)) return;
  LockGuard guard(span_lock);
  add_grown();
}

// Moves the frontier and takes new units; with `fresh`, only units that were never in use. Charges for the units first,
// so that a refusal by the limit leaves no trace.
Span take_by_growing(usize units, usize alignment, bool fresh, bool& refused, Surplus& surplus) {
  LockGuard growing(growth_lock);
  finish_cut_growth();
  if (!fresh) {
    // Another thread may have made room meanwhile.
    const Span span = take_free(units, alignment, refused, surplus);
    if (span.first != kNoUnit || refused) return span;
  }
  refused = !charge_ahead(units_to_bytes(units));
  if (refused) return {};
  const Grown new_units = commit_units(units, alignment);
  if (new_units.units == 0) {
    uncharge(units_to_bytes(units));
    return {};
  }
  LockGuard guard(span_lock);
  add_grown();
  UnitIndex first = fresh ? kNoUnit : span_map.find(units, alignment);
  if (first == kNoUnit) first = static_cast<UnitIndex>(round_up(new_units.first, alignment));
  uncharge(units_to_bytes(span_map.count_dirty(first, units)));
  confirm_charge();
  return take_found(first, units, surplus);
}

// Takes units. They may still be guards, unless they are `fresh`, never in use before.
Span take_units(usize units, usize alignment, bool fresh, usize room = 0) {
  if (units > kWindowUnitsMax) return {};
  for (int attempt = 0;; ++attempt) {
    bool refused = false;  // by the limit
    Surplus surplus;
    Span span;
    if (!fresh) span = take_free(units, alignment, refused, surplus, room);
    if (span.first == kNoUnit && !refused) span = take_by_growing(units, alignment, fresh, refused, surplus);
    if (FREESTONE_UNLIKELY(surplus.units > 0)) purge_units(surplus);
    if (span.first != kNoUnit) return span;
    // Giving free memory back makes room under the limit. It does not help if the kernel refuses: it refuses addresses,
    // not memory.
    if (!refused || attempt > 0 || units_to_bytes(units) > account.hard.load_relaxed() ||
        purge_spans(0, WentBack::shortage) == 0)
      return {};
  }
}

// Makes guards among the units accessible. Guards stay when the span before them is returned, because the next span of
// its length then finds them in place and saves two system calls; whatever else takes the units opens them first. False
// when the kernel refuses.
bool open_guards(UnitIndex first, usize units) {
  if (!guards_spans()) return true;
  usize from = units;
  usize end = 0;
  for (usize k = 0; k < units; ++k) {
    if (tag_of(first + static_cast<UnitIndex>(k)) != kTagGuard) continue;
    from = min_of(from, k);
    end = k + 1;
  }
  if (end == 0) return true;
  const UnitIndex start = first + static_cast<UnitIndex>(from);
  return open_units(start, end - from);
}

bool are_guards(UnitIndex first, usize units) { return all_tagged(first, units, kTagGuard); }

// Makes free units guards. They lose their contents, so these are checked first.
void close_guards(UnitIndex first, usize units, bool zeroed, GuardOf what) {
  if (are_guards(first, units)) return;
  if (!zeroed) expect_units_clear(first, units);  // HARD-2
  close_units(first, units, what);
}

// Takes `units` units, of which `opened` from `skip` on are not guards.
Span take_opened(usize units, usize alignment, usize skip, usize opened) {
  const Span span = take_units(units, alignment, false);
  if (span.first == kNoUnit || open_guards(span.first + static_cast<UnitIndex>(skip), opened)) return span;
  return_span(span.first, units, !span.zeroed);
  return take_units(units, alignment, true);
}

}  // namespace

unsigned take_spans(usize units, unsigned count, UnitIndex* spans) {
  unsigned taken = 0;
  Surplus surplus;
  if (count > 1 && !has_stored_runs()) {
    LockGuard guard(span_lock);
    while (taken < count) {
      const UnitIndex first = span_map.find(units, 1);
      if (first == kNoUnit || !charge(units_to_bytes(units - span_map.count_dirty(first, units)))) break;
      spans[taken++] = take_found(first, units, surplus).first;
    }
  }
  if (FREESTONE_UNLIKELY(surplus.units > 0)) purge_units(surplus);
  if (taken > 0) return taken;
  spans[0] = take_units(units, 1, false).first;
  return spans[0] != kNoUnit ? 1 : 0;
}

void close_front(UnitIndex first, GuardOf what) {
  if (first == region.heap_start || tag_of(first - 1) == kTagGuard) return;
  const Span unit = extend_span(first - 1, 0, 1);
  if (unit.first == kNoUnit) return;
  close_guards(first - 1, 1, unit.zeroed, what);
  return_span(first - 1, 1, !unit.zeroed && tag_of(first - 1) != kTagGuard);
}

Grown take_fresh_groups() {
  LockGuard growing(growth_lock);
  finish_cut_growth();
  Grown grown = commit_units(kGroupUnits, kGroupUnits);
  if (grown.units == 0) return {};
  LockGuard guard(span_lock);
  add_grown();
  const auto first = static_cast<UnitIndex>(round_up(grown.first, kGroupUnits));  // what lies below stays free
  grown = {first, grown.units - (first - grown.first)};
  span_map.set_taken(grown.first, grown.units);
  span_map.begin_wait(grown.units);
  return grown;
}

namespace {

Span take_between_guards(usize units, usize alignment, usize guard) {
  const usize gap = kMitigations.random_order && alignment == 1 ? span_random(kRandomGapUnits + 1) : 0;
  Span span = take_opened(gap + units + guard, alignment, gap, units);
  if (gap > 0 && span.first != kNoUnit) {
    return_span(span.first, gap, !span.is_zero(0, gap));
    span.first += static_cast<UnitIndex>(gap);
    span.dirty >>= gap;
  } else if (gap > 0) {
    span = take_opened(units + guard, alignment, 0, units);
  }
  if (span.first == kNoUnit) return span;
  const GuardOf what = guard == units ? GuardOf::slab : GuardOf::run;
  close_guards(span.first + static_cast<UnitIndex>(units), guard, span.is_zero(units, guard), what);
  close_front(span.first, what);
  return span;
}

}  // namespace

Span take_span(usize units, usize alignment) { return take_opened(units, alignment, 0, units); }

Span take_span_to_grow(usize units, usize room) { return take_units(units, 1, false, room); }

// HARD-2. What is free and not dirty is zero, and a look at it would be a fault for each page.
static void expect_taken_clear(const Span& span, usize units) {
  for (usize from = 0, to = 0; from < units; from = to) {
    const bool is_zero = span.is_zero(from);
    while (to < units && span.is_zero(to) == is_zero) ++to;
    if (!is_zero) expect_clear(unit_address(span.first + static_cast<UnitIndex>(from)), units_to_bytes(to - from));
  }
}

Span take_guarded_span(usize units, usize alignment, usize guard) {
  Span span = guard == 0 ? take_span(units, alignment) : take_between_guards(units, alignment, guard);
  span.is_empty = span.is_zero(0, units);
  if (kMitigations.zero_on_free && span.first != kNoUnit && !span.zeroed &&
      units_to_bytes(units) <= kLookedAtBytesMax) {
    expect_taken_clear(span, units);
    span.zeroed = true;
  }
  return span;
}

static bool has_dirty(UnitIndex first, usize units) {
  LockGuard guard(span_lock);
  return span_map.count_dirty(first, units) != 0;
}

usize check_free_spans(UnitIndex first, UnitIndex end) {
  usize checked = 0;
  if (!kMitigations.zero_on_free || !has_dirty(first, end - first)) return 0;
  for (UnitIndex unit = first; unit < end; ++unit) {
    LockGuard guard(span_lock);  // for one unit at a time
    if (!span_map.are_free(unit, 1) || span_map.count_dirty(unit, 1) == 0) continue;
    expect_units_clear(unit, 1);
    checked += kUnitBytes;
  }
  return checked;
}

Span extend_span(UnitIndex first, usize units, usize more) {
  const UnitIndex start = first + static_cast<UnitIndex>(units);
  Surplus surplus;  // goes at the next free
  LockGuard guard(span_lock);
  if (start + more > region.frontier.load_relaxed() || !span_map.are_free(start, more)) return {};
  if (!charge(units_to_bytes(more - span_map.count_dirty(start, more)))) return {};
  return take_found(start, more, surplus);
}

bool extend_guarded_span(UnitIndex first, usize units, usize more, usize guard) {
  const Span taken = extend_span(first, units + guard, more);
  if (taken.first == kNoUnit) return false;
  if constexpr (!kMitigations.guards) return true;
  const UnitIndex start = first + static_cast<UnitIndex>(units);
  const UnitIndex behind = start + static_cast<UnitIndex>(more);
  const bool was_guard = are_guards(start, guard);
  if (!open_guards(start, more)) {
    return_span(taken.first, more, !taken.zeroed);
    return false;
  }
  close_guards(behind, guard, taken.is_zero(more - guard, guard), GuardOf::run);
  if (kMitigations.zero_on_free && units_to_bytes(more) <= kLookedAtBytesMax) {
    if (!was_guard) expect_clear(unit_address(start), units_to_bytes(guard));
    expect_taken_clear(taken, more - guard);
  }
  return true;
}

SpanCounts span_counts() {
  LockGuard guard(span_lock);
  return {committed_units(), span_map.free_units() + span_map.waiting_units(), span_map.dirty_units()};
}

FREESTONE_SLOW FREESTONE_NO_ANALYSIS void repair_spans_in_child(Cut cut) {  // the locks are seized or not
  if (cut == Cut::fork) renew_span_random();
  const bool grew = growth_lock.seize_in_child(cut);
  const bool changed = span_lock.seize_in_child(cut);
  if (grew) repair_growth_in_child();
  if (changed) {
    if (grew && unadded.units != 0) {  // it may be half added
      span_map.free_anew(unadded.first, unadded.units);
      unadded.units = 0;
    }
    span_map.count_anew();
    FREESTONE_CHECK("FORK-3", span_map.is_valid());
    span_lock.unlock();
  } else if (grew && unadded.units != 0 && span_lock.try_lock()) {  // else the interrupted code has it
    add_grown();
    span_lock.unlock();
  }
  if (grew) growth_lock.unlock();
}

FREESTONE_NO_ANALYSIS usize charged_span_bytes() { return units_to_bytes(span_map.charged_units()); }

bool spans_are_valid() {
  LockGuard guard(span_lock);
  return span_map.is_valid();
}

}  // namespace freestone
