// Room 9, front: see large.h.

#include "front/large.h"

#include <dlfcn.h>

#include "config/options.h"
#include "front/heap.h"
#include "span/mapping.h"
#include "span/span_heap.h"

extern "C" {
__attribute__((weak)) void* __libc_malloc(std::size_t bytes);
__attribute__((weak)) void* __libc_calloc(std::size_t count, std::size_t bytes);
__attribute__((weak)) void* __libc_realloc(void* block, std::size_t bytes);
__attribute__((weak)) void* __libc_memalign(std::size_t alignment, std::size_t bytes);
__attribute__((weak)) void __libc_free(void* block);
}

namespace freestone {

namespace {

// Above this a run that grows by realloc moves to a mapping, where growing is the kernel's work.
constexpr usize kGrowByMappingBytes = kMiB;
// Alignment that unit positions can give: the region starts at a multiple of this.
constexpr usize kRunAlignmentMax = 2 * kMiB;

void set_run_tags(UnitIndex first, usize units, u8 start, u8 inside) {
  set_tag(first, start);
  for (usize k = 1; k < units; ++k) set_tag(first + static_cast<UnitIndex>(k), inside);
}

Atomic<usize> live_runs;  // relaxed: statistics
Atomic<usize> live_run_units;

// Address space beyond the block, so that the next growth needs no system call. Untouched, it costs no memory.
usize with_headroom(usize bytes) { return bytes + bytes / 8; }

bool shrink_run(UnitIndex first, usize old_units, usize new_units) {
  live_run_units.sub_relaxed(old_units - new_units);
  record_of(first).run_units = static_cast<u32>(new_units);
  for (usize k = new_units; k < old_units; ++k) set_tag(first + static_cast<UnitIndex>(k), kTagNone);
  return_span(first + static_cast<UnitIndex>(new_units), old_units - new_units, true);
  return true;
}

bool grow_run(UnitIndex first, usize old_units, usize new_units) {
  bool zeroed;
  if (!extend_span(first, old_units, new_units - old_units, zeroed)) return false;
  for (usize k = old_units; k < new_units; ++k) set_tag(first + static_cast<UnitIndex>(k), kTagInside);
  record_of(first).run_units = static_cast<u32>(new_units);
  live_run_units.add_relaxed(new_units - old_units);
  return true;
}

}  // namespace

void* allocate_large(usize bytes, usize alignment, bool* zeroed) {
  bool zero = true;
  void* block = nullptr;
  if (bytes <= options.map_bytes && alignment <= kRunAlignmentMax) {
    const usize units = bytes_to_units(bytes);
    const Span span = take_span(units, max_of<usize>(alignment >> kUnitShift, 1));
    if (span.first != kNoUnit) {
      record_of(span.first).run_units = static_cast<u32>(units);
      set_run_tags(span.first, units, kTagRun, kTagInside);
      live_runs.add_relaxed(1);
      live_run_units.add_relaxed(units);
      zero = span.zeroed;
      block = unit_address(span.first);
    }
  }
  if (block == nullptr) block = map_block(bytes, alignment);
  if (block == nullptr && purge_spans(0) > 0) block = map_block(bytes, alignment);
  if (zeroed != nullptr) *zeroed = zero;
  return block;
}

void deallocate_run(void* block) {
  const UnitIndex first = unit_of(block);
  const usize units = record_of(first).run_units;
  live_runs.sub_relaxed(1);
  live_run_units.sub_relaxed(units);
  set_run_tags(first, units, kTagNone, kTagNone);
  return_span(first, units, true);
}

RunCounts run_counts() { return {live_runs.load_relaxed(), units_to_bytes(live_run_units.load_relaxed())}; }

usize run_bytes(const void* block) { return units_to_bytes(record_of(unit_of(block)).run_units); }

usize large_good_size(usize bytes) { return round_up(bytes, bytes <= kRunBytesMax ? kUnitBytes : 4 * kKiB); }

bool resize_class_run(void* block, SizeClass size_class, usize bytes) {
  if (bytes <= kSmallBytesMax || bytes > kCachedBytesMax) return false;
  const SizeClass wanted = class_of(bytes);
  const u32 old_units = class_info(size_class).units;
  const u32 new_units = class_info(wanted).units;
  const UnitIndex first = unit_of(block);
  if (new_units > old_units) {
    bool zeroed;
    if (!extend_span(first, old_units, new_units - old_units, zeroed)) return false;
    for (u32 k = old_units; k < new_units; ++k) set_tag(first + k, kTagInside);
  } else if (new_units < old_units) {
    for (u32 k = new_units; k < old_units; ++k) set_tag(first + k, kTagNone);
    return_span(first + new_units, old_units - new_units, true);
  }
  set_tag(first, static_cast<u8>(wanted));
  note_run_resized(size_class, wanted);
  return true;
}

void* resize_large(void* block, usize old_bytes, usize bytes, bool is_mapping) {
  if (bytes <= kCachedBytesMax) return nullptr;
  if (is_mapping) {
    if (bytes <= old_bytes && bytes >= old_bytes - old_bytes / 4) return block;
    if (bytes <= kRunBytesMax / 2 && bytes < old_bytes / 2) return nullptr;
    return remap_block(block, bytes > old_bytes ? with_headroom(bytes) : bytes);
  }
  const usize old_units = old_bytes >> kUnitShift;
  const usize new_units = bytes_to_units(bytes);
  if (new_units == old_units) return block;
  const UnitIndex first = unit_of(block);
  if (new_units < old_units) return shrink_run(first, old_units, new_units) ? block : nullptr;
  if (bytes <= kRunBytesMax && grow_run(first, old_units, new_units)) return block;
  return nullptr;
}

void* allocate_for_growth(usize old_bytes, usize bytes) {
  if (old_bytes >= kGrowByMappingBytes && bytes > old_bytes) {
    if (void* block = map_block(with_headroom(bytes), 1); block != nullptr) return block;
  }
  return allocate(bytes);
}

void* passthrough_malloc(usize bytes) { return __libc_malloc(bytes); }
void* passthrough_calloc(usize bytes) { return __libc_calloc(1, bytes); }
void* passthrough_realloc(void* block, usize bytes) { return __libc_realloc(block, bytes); }
void* passthrough_aligned(usize bytes, usize alignment) { return __libc_memalign(alignment, bytes); }
void passthrough_free(void* block) { __libc_free(block); }

usize passthrough_usable_size(const void* block) {
  using UsableSize = std::size_t (*)(const void*);
  const auto usable = reinterpret_cast<UsableSize>(dlsym(RTLD_NEXT, "malloc_usable_size"));
  return usable != nullptr ? usable(block) : 0;
}

}  // namespace freestone
