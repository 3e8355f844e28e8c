// Room 6, span: see dedicated.h.

#include "span/dedicated.h"

#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "region/account.h"
#include "region/guarding.h"
#include "span/purge.h"
#include "span/retired.h"
#include "span/span_map.h"

namespace freestone {

namespace {

// The units of a group that nobody has cut yet, as bits.
struct Reserve {
  UnitIndex group = kNoUnit;
  u64 uncut = 0;
};
// The group before the latest, which small slabs fill where larger ones left room, and the latest.
constinit Reserve reserves[2] FREESTONE_GUARDED_BY(span_lock);
constinit Grown fresh FREESTONE_GUARDED_BY(span_lock);  // whole groups
// The kernel refused to open a guard. The next group does without guards, so that not every slab costs a group.
constinit bool next_is_unguarded FREESTONE_GUARDED_BY(span_lock) = false;
// How many slabs, in use or retired, have a guard of their own.
constinit usize guarded_slabs FREESTONE_GUARDED_BY(span_lock);
FREESTONE_FAR constinit RetiredChain retired[kLastSmallClass + 1] FREESTONE_GUARDED_BY(span_lock);

// Cuts the lowest place, or finds none.
UnitIndex cut(SizeClass size_class) FREESTONE_REQUIRES(span_lock) {
  const UnitIndex place = place_units(size_class);
  for (Reserve& reserve : reserves) {
    for (UnitIndex at = 0; at < kGroupUnits && reserve.uncut != 0; at += place) {
      if ((reserve.uncut >> at & low_mask(place)) != low_mask(place)) continue;
      reserve.uncut &= ~(low_mask(place) << at);
      record_of(reserve.group + at).run_units = place;
      if (place > class_info(size_class).units) ++guarded_slabs;
      return reserve.group + at;
    }
  }
  return kNoUnit;
}

bool charge_or_purge(usize bytes) {
  if (charge(bytes)) return true;
  return bytes <= account.hard.load_relaxed() && purge_spans(0, WentBack::shortage) != 0 && charge(bytes);
}

void make_free(UnitIndex first, usize units) FREESTONE_REQUIRES(span_lock) { span_map.free_waiting(first, units); }

// The units of a slab's place from `from` on.
void make_place_free(SizeClass size_class, UnitIndex first, u32 from) FREESTONE_REQUIRES(span_lock) {
  const u32 units = record_of(first).run_units;
  if (units > class_info(size_class).units) --guarded_slabs;
  record_of(first).run_units = from;
  make_free(first + from, units - from);
}

// The guard of every slab that is in use.
void make_guards_free() {
  const UnitIndex end = region.frontier.load_acquire();
  for (UnitIndex unit = region.heap_start; unit < end;) {
    LockGuard guard(span_lock);  // for one slab at a time
    if (guarded_slabs == 0) return;
    const u8 tag = tag_of(unit);
    const bool is_slab = tag != kTagNone && tag <= kLastSmallClass;
    const u32 units = is_slab ? class_info(tag).units : 1;
    const auto first = static_cast<UnitIndex>(round_down(unit, units));
    if (is_slab && record_of(first).run_units > units) make_place_free(tag, first, units);
    unit = first + units;
  }
}

void make_uncut_free() FREESTONE_REQUIRES(span_lock) {
  for (Reserve& reserve : reserves) {
    while (reserve.uncut != 0) {
      const unsigned from = lowest_bit(reserve.uncut);
      const unsigned units = trailing_ones(reserve.uncut >> from);
      reserve.uncut &= ~(low_mask(units) << from);
      make_free(reserve.group + from, units);
    }
  }
  if (fresh.units != 0) make_free(fresh.first, std::exchange(fresh.units, 0));
}

UnitIndex pop_fresh() FREESTONE_REQUIRES(span_lock) {
  if (fresh.units == 0) return kNoUnit;
  fresh.units -= kGroupUnits;
  return std::exchange(fresh.first, fresh.first + kGroupUnits);
}

UnitIndex take_fresh_group() {
  {
    LockGuard guard(span_lock);
    if (const UnitIndex group = pop_fresh(); group != kNoUnit) return group;
  }
  const Grown grown = take_fresh_groups();
  if (grown.units == 0) return kNoUnit;
  LockGuard guard(span_lock);
  if (fresh.units != 0) make_free(fresh.first, fresh.units);  // of a thread that was as quick
  fresh = grown;
  return pop_fresh();
}

bool add_group() {
  const UnitIndex group = take_fresh_group();
  if (group == kNoUnit) return false;
  bool guarded = guards_spans();
  {
    LockGuard guard(span_lock);
    if (next_is_unguarded) guarded = next_is_unguarded = false;
  }
  if (guarded && close_units(group, kGroupUnits, GuardOf::group)) close_front(group, GuardOf::group);
  LockGuard guard(span_lock);
  FREESTONE_CHECK("DEDICATED-1", all_tagged(group, kGroupUnits, kTagNone) || all_tagged(group, kGroupUnits, kTagGuard));
  reserves[0] = reserves[1];
  reserves[1] = {group, ~u64{0}};
  return true;
}

// Takes units that wait.
bool open(UnitIndex first, usize units) {
  if (tag_of(first) == kTagGuard && !open_units(first, units)) return false;
  LockGuard guard(span_lock);
  span_map.end_wait(units);
  note_taken(first, units);
  return true;
}

UnitIndex take_retired(SizeClass size_class) {
  UnitIndex first;
  {
    LockGuard guard(span_lock);
    first = retired[size_class].pop();
  }
  if (first == kNoUnit || open(first, class_info(size_class).units)) return first;
  LockGuard guard(span_lock);
  retired[size_class].push(first);
  return kNoUnit;
}

UnitIndex take_uncut(SizeClass size_class) {
  for (int tries = 0; tries < 4; ++tries) {  // a guarded group that does not open, then one without guards
    UnitIndex first;
    {
      LockGuard guard(span_lock);
      first = cut(size_class);
    }
    if (first == kNoUnit) {
      if (!add_group()) return kNoUnit;
      continue;
    }
    if (open(first, class_info(size_class).units)) return first;
    LockGuard guard(span_lock);
    next_is_unguarded = true;
    for (Reserve& reserve : reserves) reserve.uncut = 0;
  }
  return kNoUnit;
}

}  // namespace

Span take_slab_units(SizeClass size_class) {
  const usize units = class_info(size_class).units;
  if (!charge_or_purge(units_to_bytes(units))) return {};
  Span taken;
  taken.first = take_retired(size_class);
  if (taken.first == kNoUnit) taken.first = take_uncut(size_class);
  taken.zeroed = taken.is_empty = true;
  if (taken.first != kNoUnit) return taken;
  uncharge(units_to_bytes(units));
  taken = take_guarded_span(units, units, 0);
  if (taken.first != kNoUnit) record_of(taken.first).run_units = static_cast<u32>(units);
  return taken;
}

bool retire_slab_units(SizeClass size_class, UnitIndex first, usize slabs, WentBack why) {
  const usize units = class_info(size_class).units;
  const usize place = place_units(size_class);
  const usize all = (slabs - 1) * place + units;  // what lies between two slabs has no memory
  const usize bytes = slabs * units_to_bytes(units);
  if (guards_spans() && close_units(first, all, GuardOf::slab)) {
    note_purge(true);
    note_back(why, bytes);
  } else if (!purge_range(unit_address(first), units_to_bytes(all), why)) {
    return false;
  }
  uncharge(bytes);
  LockGuard guard(span_lock);
  span_map.begin_wait(slabs * units);
  for (usize k = 0; k < slabs; ++k) retired[size_class].push(first + static_cast<UnitIndex>(k * place));
  return true;
}

bool have_places(SizeClass size_class, UnitIndex first, usize slabs) {
  LockGuard guard(span_lock);
  for (; slabs > 0 && has_place(size_class, first); first += place_units(size_class)) --slabs;
  return slabs == 0;
}

void release_dedicated() {
  if (!dedicates_slabs()) return;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    for (;;) {
      LockGuard guard(span_lock);
      const UnitIndex first = retired[c].pop();
      if (first == kNoUnit) break;
      make_place_free(c, first, 0);
    }
  }
  make_guards_free();
  LockGuard guard(span_lock);
  make_uncut_free();
}

}  // namespace freestone
