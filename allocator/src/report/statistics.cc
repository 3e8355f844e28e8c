// Room 18, report: see statistics.h. The formats are in statistics_print.cc and openmetrics.cc.

#include "report/statistics.h"

#include "cache/arrays.h"
#include "cache/cache.h"
#include "cache/registry.h"
#include "front/reclaim.h"
#include "front/sampled.h"
#include "hardened/checked.h"
#include "hardened/large.h"
#include "heaps/heap_object.h"
#include "limits/limits.h"
#include "region/account.h"
#include "region/guarding.h"
#include "region/metadata.h"
#include "region/traffic.h"
#include "slab/ground.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/run.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

usize less(usize total, usize part) { return total > part ? total - part : 0; }
usize limit_bytes(const Atomic<usize>& limit) {
  const usize bytes = limit.load_relaxed();
  return bytes == kNoLimit ? 0 : bytes;
}

void add_thread(void* context, const Cache& cache, usize cached_bytes) {
  auto& s = *static_cast<Statistics*>(context);
  if (s.listed_count == kThreadsListed) return;
  s.listed[s.listed_count++] = {cache.thread_id, static_cast<u32>(cache.capacity_bytes), cached_bytes, cache.refills};
}

// Counts the blocks of each class. Returns the bytes of slab blocks and class runs that are not free.
FREESTONE_APART usize count_classes(HeapFigures& s, ClassStatistics* classes) {
  usize cached[kClassEnd];
  count_cached(cached);
  usize outside_bytes = 0;
  ClassStatistics unlisted{};
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    ClassStatistics& k = classes != nullptr ? classes[plain_class(c)] : unlisted;  // of both partitions
    const usize outside = class_blocks_outside(c);
    const usize cached_blocks = min_of(cached[c], outside);
    k.block_bytes = class_info(c).bytes;
    k.cached_blocks += cached_blocks;
    k.live_blocks += outside - cached_blocks;
    if (is_slab_class(c)) {
      const SlabUse use = slab_use(c);
      const usize per_slab = class_info(c).blocks;
      k.slabs += use.slabs + (blocks_on_ground(c) + per_slab - 1) / per_slab;
      k.free_blocks += use.free_bytes / k.block_bytes;
      s.class_free_blocks += use.free_bytes / k.block_bytes;
      s.small_bytes += (outside - cached_blocks) * k.block_bytes;
      s.unbacked_bytes += use.empty_bytes;
    } else if (guards_spans()) {
      s.unbacked_bytes += outside * kUnitBytes;  // a guard behind each
    }
    s.class_cached_blocks += cached_blocks;
    s.live_blocks += outside - cached_blocks;
    s.live_bytes += (outside - cached_blocks) * k.block_bytes;
    s.thread_cached_bytes += cached_blocks * k.block_bytes;
    outside_bytes += outside * k.block_bytes;
  }
  return outside_bytes;
}

void count_traffic(HeapFigures& s) {
  usize HeapFigures::* const back[kWentBackKinds] = {
      &Statistics::purged_surplus_bytes, &Statistics::purged_decay_bytes,    &Statistics::purged_slabs_bytes,
      &Statistics::purged_trim_bytes,    &Statistics::purged_shortage_bytes, &Statistics::purged_hardening_bytes,
      &Statistics::unmapped_bytes};
  usize HeapFigures::* const came[kCameKinds] = {&Statistics::taken_fresh_bytes, &Statistics::taken_again_bytes,
                                                &Statistics::populated_bytes, &Statistics::mapped_total_bytes};
  for (unsigned k = 0; k < kWentBackKinds; ++k) {
    s.*back[k] = traffic.back_bytes[k].load_relaxed();
    if (static_cast<WentBack>(k) == WentBack::mapping) continue;
    s.purged_bytes += s.*back[k];
    s.purge_calls += traffic.back_calls[k].load_relaxed();
  }
  s.purge_cost_ns = purge_budget.cost_ns();
  s.worked_ms = worked_ms.load_relaxed();
  for (unsigned k = 0; k < kCameKinds; ++k) s.*came[k] = traffic.came_bytes[k].load_relaxed();
}

}  // namespace

void collect_statistics(Statistics& s, ProcessFigures process) {
  s = {};
  collect_figures(s, process, s.classes);
  for_each_cache(add_thread, &s);
}

void collect_figures(HeapFigures& s, ProcessFigures process, ClassStatistics* classes) {
  s = {};
  const usize outside_bytes = count_classes(s, classes);
  for_each_cache([](void* threads, const Cache&, usize) { ++*static_cast<usize*>(threads); }, &s.threads);
  const MappingCounts mappings = mapping_counts();
  const RunCounts runs = run_counts();
  if (guards_spans()) s.unbacked_bytes += units_to_bytes(runs.runs);  // a guard behind each
  const RunCounts held = held_runs();
  const HeapObjectCounts heaps = heap_object_counts();
  const SpanCounts spans = span_counts();
  s.mapped_bytes = mappings.bytes;
  s.mapped_blocks = mappings.blocks;
  s.large_bytes = less(runs.bytes, held.bytes);
  s.large_blocks = less(runs.runs, held.runs);
  s.run_cached_bytes = held.bytes + units_to_bytes(kept_units.load_relaxed());
  s.heap_objects = heaps.heaps;
  s.heap_object_bytes = heaps.span_bytes;
  const SampledCounts sampled = sampled_counts();
  s.live_bytes += mappings.bytes + s.large_bytes + heaps.live_bytes + sampled.live_bytes;
  s.live_blocks += mappings.blocks + s.large_blocks + heaps.live_blocks + sampled.live_blocks;
  s.committed_bytes = units_to_bytes(spans.committed_units);
  const usize free_bytes = units_to_bytes(spans.free_units);
  s.dirty_bytes = units_to_bytes(spans.dirty_units);
  s.clean_bytes = free_bytes - s.dirty_bytes;
  s.slab_free_bytes = less(less(s.committed_bytes, free_bytes),
                           outside_bytes + s.large_bytes + s.run_cached_bytes + heaps.live_bytes + sampled.live_bytes);
  s.unbacked_bytes = min_of(s.unbacked_bytes + sampled_closed_bytes.load_relaxed(), s.slab_free_bytes);
  {
    LockGuard guard(growth_lock);
    s.metadata_bytes = metadata_committed_bytes();
    s.metadata_resident_bytes =
        process == ProcessFigures::asked ? metadata_resident_bytes() : metadata_committed_bytes();
    s.reserved_bytes = region.reserved ? units_to_bytes(region.window_end - region.heap_start) : s.committed_bytes;
  }
  s.metadata_bytes += metadata_mapped_bytes() + mappings.table_bytes;
  s.metadata_resident_bytes += metadata_touched_bytes() + mappings.table_bytes;
  s.charged_bytes = account.charged.load_relaxed();
  s.peak_bytes = max_of(account.peak.load_relaxed(), s.charged_bytes);
  s.reserved_bytes += mappings.bytes;
  if (process == ProcessFigures::asked) {
    s.resident_bytes = os::resident_bytes();
    s.peak_resident_bytes = max_of(os::peak_resident_bytes(), s.resident_bytes);
  }
  count_traffic(s);
  s.limit_soft_bytes = limit_bytes(account.soft);
  s.limit_hard_bytes = limit_bytes(account.hard);
  s.soft_limit_crossings = account.soft_crossings.load_relaxed();
  s.reclaims = reclaim_counts().reclaims;
  s.failed_allocations = reclaim_counts().failed_allocations;
  s.pressure_reactions = pressure_reactions();
  const GuardCounts guards = guard_counts();
  s.guard_mappings = guards.mappings;
  s.guard_mappings_max = guards.mappings_max;
  s.fragmentation_permille = s.charged_bytes == 0 ? 0 : less(s.charged_bytes, s.live_bytes) * 1000 / s.charged_bytes;
  for (unsigned k = 0; k < os::kCallKinds; ++k) s.system_calls[k] = os::calls(static_cast<os::CallKind>(k));
}

bool may_collect_here() {
  Mutex* const locks[] = {&heap_object_lock, &cache_registry_lock, &mapping_lock, &growth_lock, &span_lock};
  for (Mutex* lock : locks) {
    if (!becomes_free(*lock)) return false;
  }
  return true;
}

}  // namespace freestone
