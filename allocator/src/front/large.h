// Room 9, front: blocks above the size classes.
//
// Up to the option map_bytes they are runs: units of the region, whose length stands in the record of the first one.
// Larger ones are mappings of their own. Where one of the two cannot be had, the other is tried.
#pragma once

#include "config/size_class.h"
#include "front/sampled.h"
#include "span/run.h"

namespace freestone {

// `bytes` at a multiple of `alignment`; sets *zeroed (if not null) to whether the memory is zero. Null when memory is
// out.
void* allocate_large(usize bytes, usize alignment, bool* zeroed);
void deallocate_run(void* block);
usize run_bytes(const void* block);
usize large_good_size(usize bytes);

// Gives a class run the size of another class in place. False when it must move.
bool resize_class_run(void* block, SizeClass size_class, usize bytes);
// Whether a realloc to `bytes`, not 0, leaves a live run where it is, because it keeps its units: most grow by
// appending. Always false in the hardened build, for a freed run, and for any other block.
inline bool keeps_units(const void* block, usize bytes) {
  const usize offset = address_of(block) - region.base;
  if (kChecksEveryCall || offset >= region.frontier_bytes.load_operand() || tag_at(region.base, offset) != kTagRun)
    return false;
  const usize old_bytes = units_to_bytes(run_units(static_cast<UnitIndex>(offset >> kUnitShift)));
  return offset % kUnitBytes == 0 && bytes <= old_bytes && old_bytes - bytes < kUnitBytes &&
         sample_observer.load_relaxed() == nullptr;
}
// Resizes a run or mapping in place or, if it is a mapping, by moving its pages. Null when it must be copied.
void* resize_large(void* block, usize old_bytes, usize bytes, bool is_mapping);
// A block with room to grow further, for a realloc that copies. A block of a mebibyte or more that grows becomes a
// mapping, which can grow without copying. Null where any other block is as good.
void* place_for_growth(usize old_bytes, usize bytes);

}  // namespace freestone
