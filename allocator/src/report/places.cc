// Room 18, report: where the counters of report/statistics.cc lie, for another process that reads them in place
// (lab/freestone_lab/heap/in_place.py), also while this one is idle. It lies among what the loader seals. A change of
// the order, or of what these places hold, changes the exported name.

#include "base/places.h"
#include "cache/counting.h"
#include "cache/registry.h"
#include "config/options.h"
#include "region/account.h"
#include "region/traffic.h"
#include "slab/holding.h"
#include "span/purge.h"
#include "span/span_map.h"

namespace freestone {

namespace {

template <typename Of>
constexpr u32 quarantine_at(bool tops) {
  if constexpr (kMitigations.quarantine) return tops ? offsetof(Of, quarantine.top) : offsetof(Of, quarantine.queues);
  return 0;
}

constexpr u32 kNumbers[] = {
    kClassEnd,
    kLastSmallClass,
    sizeof(ClassInfo),
    sizeof(ShardRow),
    kShardsMax,
    kMitigations.guards,
    sizeof(Cache),
    offsetof(Cache, top),
    offsetof(Cache, base),
    offsetof(Cache, run) + offsetof(HeldRun, units),
    offsetof(Cache, worker),
    offsetof(Cache, thread_id),
    offsetof(Cache, capacity_bytes),
    offsetof(Cache, refills),
    offsetof(Cache, counting),
    kCountedEntry,
    kCountedClassEnd,
    sizeof(Counted),
    quarantine_at<Cache>(true),
    quarantine_at<Cache>(false),
    sizeof(Queue),
    quarantine_at<Cache>(false) + offsetof(Queue, held),
};

}  // namespace

extern "C" FREESTONE_EXPORT const void* const freestone_places[];
constinit const void* const freestone_places[] = {
    kNumbers,
    FREESTONE_VERSION " " FREESTONE_BUILD,
    kClasses.info,
    &account,
    &traffic,
    &purge_budget,
    &worked_ms,
    &kept_units,
    shard_rows[0].blocks_out,
    slab_units_in_use,
    empty_bytes,
    span_map.counts(),
    &sealed_page.guarding,
    call_places,
    table_places,
    metadata_places,
    guard_places,
    class_run_places,
    run_places,
    mapping_places,
    heap_places,
    transfer_places,
    sampled_places,
    reclaim_places,
    pressure_places,
};

}  // namespace freestone
