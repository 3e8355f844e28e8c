// Room 6, span: runs, the blocks between the thread cache's largest and kRunBytesMax.
//
// A run is a span of its own; its length stands in the record of its first unit. In front of the span heap stands a small cache of runs
// up to 1 MiB: one slot per doubling in each of a few sets, taken and filled by one atomic exchange. All slots
// together hold less than 8 MiB. In front of those each thread keeps one run for itself. A run that is kept has length 0 in its record, so
// a second free of it is seen.
#pragma once

#include "region/region.h"

namespace freestone {

// The sizes of runs that are kept. One may be smaller: its alignment made it a run.
constexpr bool is_kept_run(usize bytes) { return bytes > kCachedBytesMax && bytes <= kSharedRunBytesMax; }

// A run of `units` at a multiple of `alignment` units; kNoUnit when memory is out. `zeroed` says whether it is all zero.
UnitIndex take_run(unsigned shard, usize units, usize alignment, bool& zeroed);
// Takes a run back. False when it is free already.
bool return_run(unsigned shard, UnitIndex first);
// Takes back a run whose units all fault. They fault until the run is taken again.
void return_sealed_run(UnitIndex first);
// Lengthens or shortens a run where it is. False when what lies behind it is in use.
bool resize_run(UnitIndex first, usize units);
inline usize run_units(UnitIndex first) { return record_of(first).run_units; }

// The run that a thread keeps. Only the thread changes it; `units` is written last when it fills and first when it empties, for the
// child of a fork.
struct HeldRun {
  UnitIndex first = 0;
  Atomic<u32> units;    // 0: none
  bool wanted = false;  // it was taken since the owner last looked

  // The run of exactly this length; kNoUnit when there is none.
  UnitIndex take(usize of_units) {
    if (units.load_relaxed() != of_units) return kNoUnit;
    units.store_release(0);
    wanted = true;
    record_of(first).run_units = static_cast<u32>(of_units);
    return first;
  }
};
// Keeps a live run (is_kept_run); what was kept goes to a slot.
void hold_run(HeldRun& held, unsigned shard, UnitIndex first);
// Gives what is kept to the span heap.
void release_held_run(HeldRun& held);

// Empties the slots.
void flush_runs();

// Without those that threads hold, which count as live here.
struct RunCounts {
  usize live_runs;
  usize live_bytes;
  usize cached_bytes;
};
RunCounts run_counts();

}  // namespace freestone
