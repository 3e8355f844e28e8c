// Room 5, region: guards, by the kernel's guard regions (Linux 6.13) or by withdrawing access.
//
// A guard region costs no mapping. On older kernels a guard is a mapping of its own and splits the one around it, and a
// process may have some 65,530 mappings. So these guards have a budget, an eighth of the allowed mappings. First come
// single ranges (sealed blocks), then the guards of runs, then free memory that went back to
// the kernel, then retired slabs, then the groups that slabs are cut from, whose blocks have trailers anyway.
//
// PROTECT-1  The mappings that guards make are at most: the borders between units with and without the tag kTagGuard,
//            and two for each closed range. A guard that was opened in parts may exceed the budget, a new one never.
#pragma once

#include "region/region.h"

namespace freestone {

enum class GuardOf : u8 { range, run, free_memory, slab, group };

// At start: reads how many mappings the kernel allows.
void find_guard_budget();

// Makes units guards, and sets their tags. They lose their memory. False where the kernel refuses or the budget is
// spent: then they are as before, or zero.
bool close_units(UnitIndex first, usize units, GuardOf what);
// Makes all of the units accessible, and clears their tags. False when the kernel refuses.
bool open_units(UnitIndex first, usize units);

// The same for whole pages anywhere, which are opened as they were closed.
bool close_range(void* start, usize bytes);
bool open_range(void* start, usize bytes);
// A closed range is free units from here on: sets their tags.
void note_closed_units(UnitIndex first, usize units);

struct GuardCounts {
  usize mappings;
  usize mappings_max;  // 0: guards are no mappings, or there are none
};
GuardCounts guard_counts();

}  // namespace freestone
