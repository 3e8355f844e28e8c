// Room 6, span: see frames.h.

#include "span/frames.h"

#include "region/account.h"
#include "span/purge.h"
#include "span/span_map.h"

namespace freestone {

bool fill_frame_around(UnitIndex first, usize units) {
  const usize from_bytes = max_of(kFramesFromBytes, kFramesFromSlabs * units_to_bytes(units));
  if (account.charged.load_relaxed() < from_bytes || !fills_frames()) return false;
  const UnitIndex frame = first & ~(kFrameUnits - 1);
  const UnitIndex behind = first + static_cast<UnitIndex>(units);
  const UnitIndex end = frame + kFrameUnits;
  if (frame < region.heap_start || behind > end || end > region.frontier.load_acquire()) return false;
  const struct {
    UnitIndex first;
    usize units;
  } rest[] = {{frame, first - frame}, {behind, end - behind}};
  const usize rest_bytes = kFrameBytes - units_to_bytes(units);
  {
    LockGuard guard(span_lock);
    for (const auto& part : rest) {
      if (part.units == 0) continue;
      if (!span_map.are_free(part.first, part.units) || span_map.count_dirty(part.first, part.units) > 0) return false;
    }
    if (!charge(rest_bytes)) return false;
    for (const auto& part : rest) {
      if (part.units > 0) span_map.set_taken(part.first, part.units);
    }
  }
  const bool filled = fill_frame(frame);
  if (!filled) uncharge(rest_bytes);
  LockGuard guard(span_lock);
  for (const auto& part : rest) {
    if (part.units == 0) continue;
    span_map.set_free(part.first, part.units, filled);
    if (filled) note_filled(part.first, part.units);
  }
  return filled;
}

}  // namespace freestone
