// Room 6, span: frames, the stretches of 2 MiB at multiples of 2 MiB that one huge page covers.
#pragma once

#include "platform/mutex.h"
#include "region/region.h"

namespace freestone {

extern Mutex span_lock;

inline constexpr auto kFrameUnits = static_cast<UnitIndex>(kFrameBytes >> kUnitShift);

// For a span that was just taken and has no memory. If its frame holds nothing else and no memory, and the heap is
// large, fills the whole frame; the part outside the span is dirty from then on. False when nothing was done.
bool fill_frame_around(UnitIndex first, usize units);

}  // namespace freestone
