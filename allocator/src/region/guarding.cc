// Room 5, region: see guarding.h.

#include "region/guarding.h"

#include "base/atomic.h"
#include "base/digits.h"
#include "base/places.h"
#include "platform/file.h"
#include "platform/leaving.h"

namespace freestone {

namespace {

constexpr usize kMappingsUsual = 65530;
constexpr usize kBudgetDivisor = 8;
constexpr usize kMappingsOfRange = 2;

// Relaxed: a number that publishes nothing. What units add changes under span_lock.
Atomic<usize> mappings;
Atomic<usize> mappings_max;  // written at start

usize most_for(GuardOf what) {
  const usize most = mappings_max.load_relaxed();
  switch (what) {
    case GuardOf::range: return most;
    case GuardOf::run: return most - most / 8;
    case GuardOf::free_memory: return most - most / 4;
    case GuardOf::slab: return most / 2;
    case GuardOf::group: return most / 2 - min_of<usize>(most / 2, kGroupUnits);  // each slab adds two borders
  }
  return 0;
}

bool is_guard(UnitIndex unit) { return unit < region.frontier.load_relaxed() && tag_of(unit) == kTagGuard; }

// Where a guard begins or ends among the units or at either end of them.
usize borders(UnitIndex first, usize units) FREESTONE_REQUIRES(span_lock) {
  usize count = 0;
  bool before = is_guard(first - 1);
  for (usize k = 0; k <= units; ++k) {
    const bool now = is_guard(first + static_cast<UnitIndex>(k));
    count += now != before ? 1 : 0;
    before = now;
  }
  return count;
}

// Makes all of the units guards or none of them, by their tags, and counts the borders. False, and nothing has changed,
// when more than `most` mappings would result.
bool tag_units(UnitIndex first, usize units, bool guards, usize most) {
  LockGuard guard(span_lock);
  const usize before = borders(first, units);
  const usize after =
      (is_guard(first - 1) != guards ? 1 : 0) + (is_guard(first + static_cast<UnitIndex>(units)) != guards ? 1 : 0);
  if (after > before && mappings.load_relaxed() + after - before > most) return false;
  set_tags(first, units, guards ? kTagGuard : kTagNone);
  mappings.add_relaxed(after - before);
  return true;
}

bool take_mappings_of_range() {
  if (mappings.fetch_add_relaxed(kMappingsOfRange) + kMappingsOfRange <= most_for(GuardOf::range)) return true;
  mappings.sub_relaxed(kMappingsOfRange);
  return false;
}

void forget_range() {
  if (guarding() == Guarding::protection) mappings.sub_relaxed(kMappingsOfRange);
}

bool protect(void* start, usize bytes) { return !os::purge(start, bytes) && !os::protect_none(start, bytes); }

// Only a fresh group has nothing that could leave.
bool may_close(GuardOf what) { return what == GuardOf::group || !os::keeps_pages(); }

}  // namespace

void find_guard_budget() {
  char text[32];
  const usize length = os::read_file("/proc/sys/vm/max_map_count", text, sizeof text);
  const char* at = text;
  const usize allowed = take_decimal(at, text + length);
  mappings_max.store_relaxed((allowed != 0 ? allowed : kMappingsUsual) / kBudgetDivisor);
}

bool close_units(UnitIndex first, usize units, GuardOf what) {
  if (!may_close(what)) return false;
  void* const start = unit_address(first);
  if (guarding() == Guarding::advice) {
    if (what != GuardOf::group) os::announce_guard(start, units_to_bytes(units));
    if (os::guard_install(start, units_to_bytes(units))) return false;
    set_tags(first, units, kTagGuard);
    return true;
  }
  if (!tag_units(first, units, true, most_for(what))) return false;
  if (protect(start, units_to_bytes(units))) return true;
  tag_units(first, units, false, ~usize{0});
  return false;
}

bool open_units(UnitIndex first, usize units) {
  void* const start = unit_address(first);
  if (guarding() == Guarding::advice) {
    if (os::guard_remove(start, units_to_bytes(units))) return false;
    set_tags(first, units, kTagNone);
    return true;
  }
  if (os::commit(start, units_to_bytes(units))) return false;
  return tag_units(first, units, false, ~usize{0});
}

bool close_range(void* start, usize bytes) {
  if (!may_close(GuardOf::range)) return false;
  if (guarding() == Guarding::advice) {
    os::announce_guard(start, bytes);
    return !os::guard_install(start, bytes);
  }
  if (!take_mappings_of_range()) return false;
  if (protect(start, bytes)) return true;
  forget_range();
  return false;
}

bool open_range(void* start, usize bytes) {
  if (guarding() == Guarding::advice) return !os::guard_remove(start, bytes);
  if (os::commit(start, bytes)) return false;
  forget_range();
  return true;
}

void note_closed_units(UnitIndex first, usize units) {
  if (guarding() == Guarding::advice) return set_tags(first, units, kTagGuard);
  tag_units(first, units, true, ~usize{0});
  forget_range();
}

GuardCounts guard_counts() { return {mappings.load_relaxed(), mappings_max.load_relaxed()}; }

constinit Places guard_places = {&mappings, &mappings_max};

}  // namespace freestone
