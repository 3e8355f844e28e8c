// Room 6, span: runs, the blocks between the thread cache's largest and kRunBytesMax.
//
// A run is a span of its own; its length stands in the record of its first unit. In front of the span heap stands a small cache of runs
// up to 1 MiB: one slot per doubling in each of a few sets, taken and filled by one atomic exchange. All slots
// together hold less than 8 MiB. A run in a slot has length 0 in its record, so a second free of it is seen.
#pragma once

#include "region/region.h"

namespace freestone {

// A run of `units` at a multiple of `alignment` units; kNoUnit when memory is out. `zeroed` says whether it is all zero.
UnitIndex take_run(unsigned shard, usize units, usize alignment, bool& zeroed);
// Takes a run back. False when it is free already.
bool return_run(unsigned shard, UnitIndex first);
// Lengthens or shortens a run where it is. False when what lies behind it is in use.
bool resize_run(UnitIndex first, usize units);
inline usize run_units(UnitIndex first) { return record_of(first).run_units; }

// Empties the slots.
void flush_runs();

struct RunCounts {
  usize live_runs;
  usize live_bytes;
  usize cached_bytes;
};
RunCounts run_counts();

}  // namespace freestone
