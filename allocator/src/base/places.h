// Room 1, base: where files keep counters that another process reads in place (report/places.cc).
#pragma once

namespace freestone {

using Places = const void* const[];
extern Places call_places, table_places, metadata_places, guard_places, class_run_places, run_places, mapping_places,
    heap_places, transfer_places, sampled_places, reclaim_places, pressure_places;

}  // namespace freestone
