// Room 9, front: see large.h.

#include "front/large.h"

#include <cstdint>

#include "cache/slow.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "front/sampled.h"
#include "front/thread_cache.h"
#include "platform/message.h"
#include "platform/os.h"
#include "policy/policy.h"
#include "slab/class_run.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/run.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

// Alignment that unit positions can give: the region starts at a multiple of this.
constexpr usize kRunAlignmentMax = 2 * kMiB;

// Address space beyond the block, so that the next growth needs no system call. Untouched, it costs no memory.
usize with_headroom(usize bytes) { return min_of<usize>(bytes + bytes / 8, PTRDIFF_MAX); }

unsigned shard_of(const Cache* cache) { return cache != nullptr ? cache->user.shard : 0; }

// A block and whether its memory is zero.
struct Placed {
  void* block = nullptr;
  bool zeroed = false;
};

Placed place_in_region(usize bytes, usize alignment) {
  Placed placed;
  if (alignment > kRunAlignmentMax) return placed;
  const Cache* cache = ensure_cache();
  const UnitIndex first =
      take_run(shard_of(cache), bytes_to_units(bytes), max_of<usize>(alignment >> kUnitShift, 1), placed.zeroed);
  if (first != kNoUnit) placed.block = unit_address(first);
  return placed;
}

// A thread that keeps its pages could not unmap the block.
bool may_map(usize bytes) { return !os::keeps_pages() || bytes > kGrownRunBytesMax; }

Placed place_in_mapping(usize bytes, usize alignment) { return {map_block(bytes, alignment), true}; }

}  // namespace

void* allocate_large(usize bytes, usize alignment, bool* zeroed) {
  // Either source may fail: the window can be full, the mappings at their limit. A size that no run can have gets only
  // the one call.
  const bool map_first = may_map(bytes) && bytes > options.map_bytes;
  Placed placed = map_first ? place_in_mapping(bytes, alignment) : place_in_region(bytes, alignment);
  if (placed.block == nullptr && !map_first) placed = place_in_mapping(bytes, alignment);
  if (placed.block == nullptr && map_first && bytes <= kGrownRunBytesMax) placed = place_in_region(bytes, alignment);
  if (zeroed != nullptr) *zeroed = placed.zeroed;
  return placed.block;
}

void deallocate_run(void* block) {
  Cache* cache = cache_if_any();
  const usize bytes = run_bytes(block);
  // Nothing else may see the time pass.
  if (cache != nullptr && ++cache->events % kEventsPerClock == 0 && FREESTONE_UNLIKELY(tick_is_due())) tick(cache);
  if (cache != nullptr && is_kept_run(bytes) && may_hold_run(bytes))
    return hold_run(cache->run, cache->user.shard, unit_of(block));
  if (!return_run(shard_of(cache), unit_of(block))) fail("double free", block, "the block is free");
}

usize run_bytes(const void* block) { return units_to_bytes(run_units(unit_of(block))); }

usize large_good_size(usize bytes) { return round_up(bytes, bytes <= kRunBytesMax ? kUnitBytes : os::page_bytes()); }

bool resize_class_run(void* block, SizeClass size_class, usize bytes) {
  if (bytes <= kSmallBytesMax || bytes > kCachedBytesMax) return false;
  const SizeClass wanted = class_of(bytes);
  const u32 old_units = class_info(size_class).units;
  const u32 new_units = class_info(wanted).units;
  const UnitIndex first = unit_of(block);
  if (wanted < size_class) return false;  // its units' tail would wait, while the next one that shrinks needs a place
  if (new_units > old_units) {
    if (!extend_guarded_span(first, old_units, new_units - old_units, guards_spans() ? 1 : 0)) return false;
    set_tags(first + old_units, new_units - old_units, kTagInside);
  }
  set_class_run(first, static_cast<u8>(wanted));
  note_run_resized(size_class, wanted);
  return true;
}

void* resize_large(void* block, usize old_bytes, usize bytes, bool is_mapping) {
  if (bytes <= kCachedBytesMax) {
    // What is not copied goes to the kernel before the copy needs memory.
    if (!is_mapping && old_bytes > kSharedRunBytesMax) resize_run(unit_of(block), bytes_to_units(kCachedBytesMax + 1));
    return nullptr;
  }
  if (is_mapping) {
    if (stays_in(old_bytes, bytes)) return block;
    if (bytes <= kRunBytesMax / 2 && bytes < old_bytes / 2) return nullptr;
    void* moved = bytes > old_bytes ? remap_block(block, with_headroom(bytes)) : nullptr;
    return moved != nullptr ? moved : remap_block(block, bytes);
  }
  if (bytes <= kRunBytesMax && resize_run(unit_of(block), bytes_to_units(bytes))) return block;
  if (kMitigations.guards || old_bytes < kSharedRunBytesMax || bytes <= old_bytes || !may_map(bytes)) return nullptr;
  void* const mapping = map_block(with_headroom(bytes), 1);
  if (mapping != nullptr) move_run(unit_of(block), mapping);
  return mapping;
}

void* place_for_growth(usize old_bytes, usize bytes) {
  // A long run moves to a mapping, where growing is the kernel's work.
  if (old_bytes >= kSharedRunBytesMax && bytes > old_bytes && may_map(bytes)) {
    if (void* block = map_block(with_headroom(bytes), 1); block != nullptr) {
      sample_resized(block, bytes);
      return block;
    }
  }
  if (!kMitigations.guards && sample_observer.load_relaxed() == nullptr && bytes > kCachedBytesMax &&
      bytes <= kSharedRunBytesMax) {
    if (const UnitIndex first = take_run_to_grow(bytes_to_units(bytes)); first != kNoUnit) return unit_address(first);
  }
  return nullptr;
}

}  // namespace freestone
