// Room 6, span: see frames.h.

#include "span/frames.h"

#include <cerrno>

#include "base/bits.h"
#include "config/heuristics.h"
#include "platform/os.h"
#include "region/account.h"
#include "span/purge.h"
#include "span/span_map.h"

namespace freestone {

namespace {

Atomic<u32> populate_refused;  // 1: the kernel is too old

bool populate(UnitIndex first, usize units) {
  const os::Failure failure = os::populate(unit_address(first), units_to_bytes(units));
  if (failure.error == EINVAL) populate_refused.store_relaxed(1);
  if (!failure) note_came(Came::populated, units_to_bytes(units));
  return !failure;
}

struct Part {
  UnitIndex first;
  usize units;
};

// Takes free units if all of them lie in the heap and none has memory.
bool take_clean(const Part (&parts)[2]) {
  LockGuard guard(span_lock);
  if (parts[0].first < region.heap_start || parts[1].first + parts[1].units > region.frontier.load_acquire())
    return false;
  for (const Part& part : parts) {
    if (part.units == 0) continue;
    if (!span_map.are_free(part.first, part.units) || span_map.count_dirty(part.first, part.units) > 0) return false;
  }
  if (!charge(units_to_bytes(parts[0].units + parts[1].units))) return false;
  for (const Part& part : parts) {
    if (part.units > 0) span_map.set_taken(part.first, part.units);
  }
  return true;
}

void return_filled(const Part (&parts)[2], bool filled) {
  if (!filled) uncharge(units_to_bytes(parts[0].units + parts[1].units));
  LockGuard guard(span_lock);
  for (const Part& part : parts) {
    if (part.units == 0) continue;
    span_map.set_free(part.first, part.units, filled);
    if (filled) note_taken(part.first, part.units);
  }
}

}  // namespace

bool fill_around(UnitIndex first, usize units) {
  if (populate_refused.load_relaxed() != 0) return false;
  const usize heap = kMitigations.guards || is_limited() ? 0 : account.charged.load_relaxed();
  const bool frame = heap >= kFramesFromBytes && fills_frames();
  const usize most = frame ? kFrameUnits : min_of<usize>(heap / kAheadDivisor >> kUnitShift, kFrameUnits);
  if (most <= units) return populate(first, units);
  const auto length = static_cast<UnitIndex>(bit(highest_bit(most)));
  const UnitIndex start = first & ~(length - 1), behind = first + static_cast<UnitIndex>(units);
  const Part rest[2] = {{start, first - start}, {behind, start + length - behind}};
  if (!take_clean(rest)) return populate(first, units);
  const bool filled = frame ? fill_frame(start) : populate(start, length);
  if (filled && frame) note_came(Came::populated, kFrameBytes);
  return_filled(rest, filled);
  return filled;
}

}  // namespace freestone
