// Room 6, span: runs, the blocks between the thread cache's largest and kRunBytesMax.
//
// A run is a span of its own; its length stands in the record of its first unit. Freed runs up to 1 MiB wait in the
// store (span/run_store.h). In front of it each thread keeps one. A run that is kept or stored has length 0 in its
// record, so a second free of it is seen.
#pragma once

#include "policy/policy.h"
#include "region/region.h"

namespace freestone {

// The sizes of runs that are kept. One may be smaller: its alignment made it a run.
constexpr bool is_kept_run(usize bytes) { return bytes > kCachedBytesMax && bytes <= kSharedRunBytesMax; }

// A run of `units` at a multiple of `alignment` units; kNoUnit when memory is out. `zeroed` says whether it is all
// zero.
UnitIndex take_run(unsigned shard, usize units, usize alignment, bool& zeroed);
// A run for a block that is likely to grow: as much again is free behind it, where that is possible. Not where spans
// have guards.
UnitIndex take_run_to_grow(usize units);
// Takes a run back. False when it is free already.
bool return_run(unsigned shard, UnitIndex first);
// Copies what a run holds and takes it back. Each piece of it goes to the kernel behind its copy, so that there is
// never memory for both. Not where freed memory must be zero.
void move_run(UnitIndex first, void* to);
// Takes a run back that the hardened build seals.
void seal_run(UnitIndex first);
// Lengthens or shortens a run where it is. False when what lies behind it is in use.
bool resize_run(UnitIndex first, usize units);
inline usize run_units(UnitIndex first) { return record_of(first).run_units; }

// The run that a thread keeps. Only the thread changes it; `units` is written last when it fills and first when it
// empties, for the child of a fork.
struct HeldRun {
  Record* record = nullptr;
  UnitIndex first = 0;
  Atomic<u32> units;    // 0: none
  bool wanted = false;  // it was taken since the owner last looked

  void put(UnitIndex run, Record& of_run) {
    const u32 of_units = of_run.run_units;
    of_run.run_units = 0;
    first = run;
    record = &of_run;
    units.store_release(of_units);
  }

  // The run of exactly this length; kNoUnit when there is none.
  UnitIndex take(usize of_units) {
    if (units.load_relaxed() != of_units) return kNoUnit;
    units.store_release(0);
    wanted = true;
    record->run_units = static_cast<u32>(of_units);
    return first;
  }
};
// Keeps a live run (is_kept_run); what was kept goes to the store.
void hold_run(HeldRun& held, unsigned shard, UnitIndex first);
// Gives what is kept to the span heap.
void release_held_run(HeldRun& held);

// Live, and those that threads hold.
struct RunCounts {
  usize runs;
  usize bytes;
};
RunCounts run_counts();

}  // namespace freestone
