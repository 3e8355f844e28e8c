// Room 6, span: in the hardened build the addresses of a slab serve one size class for ever.
//
// Slabs are cut from groups that were never in use. A group is guarded as a whole when it is taken; of each place that
// is cut, the lower half becomes the slab and the upper half stays a guard. A slab that goes back to the kernel
// retires: it has no memory, faults where guards are possible, and waits until its class takes it again.
//
//   group    | slab | guard | slab | guard | slab of another class | guard ................ | guards ....... |
//
// So a pointer to a freed block never points into a block of another size. What waits here, guards included, is in no
// bitmap and neither live nor charged.
//
// DEDICATED-1  A unit that a slab of some class ever had is that class's slab again, retired, or a guard. Exceptions:
//              where no group is free any more, a slab takes free units of any kind; and when an allocation finds no
//              room, all that waits here becomes free units. A slab in use then has no guard of its own any more.
#pragma once

#include "config/size_class.h"
#include "platform/os.h"
#include "region/region.h"
#include "region/traffic.h"
#include "span/span_heap.h"

namespace freestone {

// Not with pages larger than a unit: a slab alone could not give its memory back.
inline bool dedicates_slabs() { return kMitigations.quarantine && os::page_bytes() <= kUnitBytes; }

// Takes the units of a slab. None when memory is out.
Span take_slab_units(SizeClass size_class);
// From the start of a slab to that of the next one of its length that lies beside it.
inline UnitIndex place_units(SizeClass size_class) { return class_info(size_class).units * (guards_spans() ? 2 : 1); }
// Whether what lies between the slab and the next place is its own.
inline bool has_place(SizeClass size_class, UnitIndex first) {
  return record_of(first).run_units == place_units(size_class);
}
// Gives the memory of one slab that nobody reaches back to the kernel, or of slabs with places side by side, and keeps
// the addresses. False if the kernel refuses: then the contents are as before, or zero.
bool retire_slab_units(SizeClass size_class, UnitIndex first, usize slabs, WentBack why);
// Whether slabs that nobody can reach, side by side, still have their places, so that retire_slab_units may take them
// together.
bool have_places(SizeClass size_class, UnitIndex first, usize slabs);
// Gives the addresses of retired slabs, those that no slab had yet, and all guards to the free spans.
void release_dedicated();

}  // namespace freestone
