// Room 6, span: memory ahead of a heap that grows, for many pages by one call instead of a fault for each. A large heap
// gets it in frames, the stretches of 2 MiB at multiples of 2 MiB that one huge page covers.
#pragma once

#include "platform/mutex.h"
#include "region/region.h"

namespace freestone {

extern Mutex span_lock;

inline constexpr auto kFrameUnits = static_cast<UnitIndex>(kFrameBytes >> kUnitShift);

// Fills a span with memory that was just taken, has none, and has as many units as its alignment. With it the stretch
// around it that is a 128th of the heap or, from kFramesFromBytes on, its frame, if nothing there is in use or has
// memory; that part is dirty from then on. False when nothing was done.
bool fill_around(UnitIndex first, usize units);

}  // namespace freestone
